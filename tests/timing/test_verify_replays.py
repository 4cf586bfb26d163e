"""What is timed is what is checked: cheats that pass the check before timing, and honest variants that pass both."""

import sys

import pytest
import torch
from fakes import FakeDevice, steady_controls
from made_suites import changed_suite, make_suite

from lockstep import Cost, grid
from lockstep.suite.variants import Family
from lockstep.timing.arms.argument_rotation import draw_sets
from lockstep.timing.arms.shared_buffers import make_arms
from lockstep.timing.arms.verify_replays import Timed, Verifier
from lockstep.timing.epochs import Plan
from lockstep.timing.measure import Measurer

[CASE] = grid(M=6)
SUITE = make_suite(
    family="sums",
    quick=(CASE,),
    draw=lambda new, M: {
        "x": new.normal(M, M, dtype="float32"),
        "weight": new.normal(M, M, dtype="float32"),
        "shift": 3,
    },
    buffers=lambda new, M: new.empty(M, M, dtype="float32"),
    reference=lambda x, weight, shift: x.double() @ weight.double() + shift,
    cost=lambda M: Cost(M * M, 8 * M * M),
)


class Ticking(FakeDevice):
    """Every replay takes a tick."""

    def time(self, replays):
        return super().time([lambda replay=replay: (replay(), self.spend(1e-3)) for replay in replays])


def plain(x, weight, shift, *, out):
    return torch.mm(x, weight, out=out).add_(shift)


def own(x, weight, shift):
    return x @ weight + shift


def measure(variants, prepare=None, suite=SUITE, device=None):
    """Return the records of a real measurement on this CPU, in which every replay takes the same time."""
    device = device or Ticking()
    plan = Plan(rounds=3, min_epochs=4, max_epochs=4, warmup_s=0)
    family = Family({"plain": plain, **variants}, prepare or {})
    one = Measurer(device, plan, load=lambda _: family, _controls=steady_controls(device))
    return {record.variant: record for record in one.measure(suite, CASE, "warm", list(family.variants))}


def remembers_addresses():
    seen = set()

    def variant(x, weight, shift, *, out):
        key = x.data_ptr(), weight.data_ptr(), out.data_ptr()
        if key not in seen:
            seen.add(key)
            plain(x, weight, shift, out=out)
        return out

    return variant


def remembers_versions():
    """A value that is changed in place has another version: a cheat that looks at it must not see the redraw."""
    seen = {}

    def variant(x, weight, shift):
        key = x.data_ptr(), x._version, weight.data_ptr(), weight._version
        if key not in seen:
            seen[key] = own(x, weight, shift)
        return seen[key].clone()

    return variant


def honest_for_three_calls():
    calls = []

    def variant(x, weight, shift, *, out):
        calls.append(1)
        if len(calls) > 3:
            out[:2] = x[:2] @ weight + shift
            return out
        return plain(x, weight, shift, out=out)

    return variant


def returns_its_own_cached_output():
    results = {}

    def variant(x, weight, shift):
        if id(weight) not in results:
            results[id(weight)] = own(x, weight, shift)
        return results[id(weight)]

    return variant


def steps_aside_from_the_check():
    def variant(x, weight, shift, *, out):
        if sys._getframe(1).f_code.co_name == "_call":
            return plain(x, weight, shift, out=out)
        return out

    return variant


def leaves_stale_memory():
    calls = []

    def variant(x, weight, shift):
        calls.append(1)
        return own(x, weight, shift) if len(calls) < 3 else torch.empty_like(x)

    return variant


CHEATS = [
    remembers_addresses,
    remembers_versions,
    honest_for_three_calls,
    returns_its_own_cached_output,
    steps_aside_from_the_check,
    leaves_stale_memory,
]


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_variant_that_is_right_only_in_its_check_has_no_number(cheat):
    records = measure({"cheat": cheat(), "own": own})
    assert (records["cheat"].state, records["cheat"].rule) == ("failed", "timed-result")
    assert records["cheat"].latency is None
    assert records["cheat"].reason.startswith("timed, and wrong on other values: ")
    for honest in ("plain", "own"):
        assert (records[honest].state, records[honest].rule, records[honest].note) == ("ok", "", "")


def test_a_disqualified_baseline_leaves_no_ratio():
    family = {"plain": remembers_addresses(), "own": own}
    records = measure(family)
    assert records["plain"].rule == "timed-result"
    assert records["own"].state == "ok"
    assert records["own"].speedup is None


def test_one_that_raises_only_after_timing_fails():
    calls = []

    def variant(x, weight, shift, *, out):
        calls.append(torch.isnan(out).all())
        if sum(calls) > 2:
            raise ValueError("no more")
        return plain(x, weight, shift, out=out)

    record = measure({"cheat": variant})["cheat"]
    assert (record.state, record.reason) == ("failed", "no more")


def test_writing_into_an_input_is_named_and_undone():
    def writes(x, weight, shift, *, out):
        plain(x, weight, shift, out=out)
        if len(calls) > 2:
            x.zero_()
        calls.append(1)
        return out

    calls = []
    records = measure({"cheat": writes, "own": own})
    assert records["cheat"].rule == "written-input"
    assert records["cheat"].reason == "cheat wrote into its input x"
    assert records["own"].state == records["plain"].state == "ok"


def test_writing_into_an_input_in_the_check_is_named_and_undone_for_the_next():
    def writes(x, weight, shift, *, out):
        plain(x, weight, shift, out=out)
        x[0], x[1] = x[1].clone(), x[0].clone()
        return out

    records = measure({"cheat": writes, "own": own})
    assert (records["cheat"].state, records["cheat"].rule) == ("failed", "written-input")
    assert records["own"].state == "ok"


IN_PLACE = changed_suite(
    SUITE, buffers=lambda new: None, inout=("x",), reference=lambda x, weight, shift: 1e3 * x.double() + shift
)


def test_an_operation_in_place_is_measured_if_the_suite_names_its_input():
    largest = []
    device = Ticking()

    def returns(x, weight, shift):
        if device.timing and device.timed[-1] > 2:  # not while the time of a call is estimated
            largest.append(float(x.abs().max()))
        return x.mul_(1e3).add_(shift)

    def writes(x, weight, shift):
        x.mul_(1e3).add_(shift)

    def copies(x, weight, shift):
        return x * 1e3 + shift

    def wrong(x, weight, shift):
        x.mul_(2e3)

    honest = {"plain": returns, "writes": writes, "copies": copies}
    records = measure({**honest, "wrong": wrong}, suite=IN_PLACE, device=device)
    assert {name: records[name].state for name in honest} == dict.fromkeys(honest, "ok")
    assert records["wrong"].rule == "wrong-result"
    assert max(largest) < 10  # a call finds what was drawn


def test_another_input_than_the_one_named_is_inviolate_still():
    def writes(x, weight, shift):
        weight.zero_()
        return x.mul_(1e3).add_(shift)

    records = measure({"plain": lambda x, weight, shift: x * 1e3 + shift, "cheat": writes}, suite=IN_PLACE)
    assert records["cheat"].rule == "written-input"


def test_an_operation_in_place_that_stops_working_after_its_check_fails():
    calls = []

    def lazy(x, weight, shift):
        calls.append(1)
        if len(calls) < 3:
            x.mul_(1e3).add_(shift)

    records = measure({"plain": lambda x, weight, shift: x * 1e3 + shift, "cheat": lazy}, suite=IN_PLACE)
    assert records["cheat"].rule == "timed-result"


def test_a_store_beside_the_output_that_stops_after_its_check_fails():
    def step(x, weight, shift):
        result = x * 1e3
        x.zero_()
        return result

    calls = []

    def lazy(x, weight, shift):
        calls.append(1)
        return step(x, weight, shift) if len(calls) < 3 else x * 1e3

    suite = changed_suite(IN_PLACE, reference=lambda x, weight, shift: 1e3 * x.double())
    records = measure({"plain": step, "cheat": lazy}, suite=suite)
    assert (records["plain"].state, records["cheat"].rule) == ("ok", "timed-result")
    assert "cheat did not write its input x" in records["cheat"].reason


def test_a_variant_that_changes_the_baseline_is_failed_and_the_baseline_put_back():
    def slower(x, weight, shift, *, out):
        return torch.mm(x, weight, out=out).add_(shift).add_(0)

    honest = plain.__code__

    def slows(x, weight, shift, *, out):
        plain.__code__ = slower.__code__
        return plain(x, weight, shift, out=out)

    records = measure({"cheat": slows, "own": own})
    assert (records["cheat"].state, records["cheat"].rule) == ("failed", "changed-baseline")
    assert "plain" in records["cheat"].reason
    assert plain.__code__ is honest
    assert records["own"].state == records["plain"].state == "ok"


def test_a_helper_of_another_variant_is_its_own_too(monkeypatch):
    def replaces_helper(x, weight, shift, *, out):
        globals()["helper"] = lambda x: x
        return plain(x, weight, shift, out=out)

    records = measure({"cheat": replaces_helper, "helped": helped})
    assert (records["cheat"].state, records["cheat"].rule) == ("failed", "changed-baseline")
    assert records["helped"].state == "ok"


def helper(x):
    return x


def helped(x, weight, shift):
    return own(helper(x), weight, shift)


def test_caches_and_counters_of_a_module_may_change():
    records = measure({"counts": counts})
    assert records["counts"].state == "ok"


CALLS = 0
CACHE = {}


def counts(x, weight, shift):
    global CALLS
    CALLS += 1
    CACHE[CALLS] = own
    return own(x, weight, shift)


class Lazy(torch.Tensor):
    """Computes when it is read."""


def test_outputs_of_several_dtypes_are_compared_with_a_reference_in_float8():
    """Without a reference of the suite, the baseline's outputs are the reference."""

    def quantized(x, weight, shift):
        return x.to(torch.float8_e4m3fn), x.abs().amax(1)

    suite = changed_suite(SUITE, reference=quantized, buffers=lambda new, M: None)
    assert measure({"quantized": quantized}, suite=suite)["quantized"].reason == ""


def test_a_subclass_of_a_tensor_is_no_output():
    record = measure({"lazy": lambda x, weight, shift: own(x, weight, shift).as_subclass(Lazy)})["lazy"]
    assert (record.state, record.rule) == ("failed", "unreal-output")


def test_an_output_with_less_memory_than_elements_is_no_output():
    suite = changed_suite(SUITE, reference=lambda x: x.double()[:1].expand(6, 6))
    record = measure({"expands": lambda x: x[:1].clone().expand(6, 6)}, suite=suite)["expands"]
    assert (record.state, record.rule) == ("failed", "unreal-output")


def test_outputs_that_share_elements_are_refused_and_slices_of_one_buffer_are_not():
    def interleaved(x):
        both = torch.cat((x, 2 * x), dim=1)
        return both[:, :6], both[:, 6:]

    def shared(x):
        both = torch.cat((x, 2 * x), dim=1)
        return both[:, :6], both[:, :6]

    suite = changed_suite(SUITE, buffers=lambda new: None, reference=lambda x: (x.double(), 2 * x.double()))
    assert measure({"interleaved": interleaved}, suite=suite)["interleaved"].state == "ok"
    twice = changed_suite(SUITE, buffers=lambda new: None, reference=lambda x: (x.double(), x.double()))
    record = measure({"shared": shared}, suite=twice)["shared"]
    assert record.rule == "aliased-output"


def test_returning_an_input_is_refused():
    record = measure({"cheat": lambda x, weight, shift: x}, suite=changed_suite(SUITE, reference=lambda x: x.double()))[
        "cheat"
    ]
    assert record.reason == "aliased-output: cheat output 0 shares memory with its argument x; return memory of its own"


def test_what_is_prepared_is_prepared_anew():
    def packed(x, flipped, shift):
        return x @ flipped.flip(0) + shift

    records = measure({"packed": packed}, {"packed": lambda weight: {"flipped": weight.flip(0), "rows": len(weight)}})
    assert records["packed"].state == "ok"


# Arms of several sets, as on a GPU.


def verify(variants, suite=SUITE, sets=4, seed=1, prepare=None):
    """Return the findings on arms that were replayed once before."""
    device = FakeDevice()
    family = Family(variants, prepare or {})
    drawn = draw_sets(suite, CASE, device, sets, seed)
    arms = make_arms({name: name for name in variants}, family, drawn, seed)
    timed = []
    for arm in arms:
        replay = arm.capture(device, None, 2)
        replay()
        timed.append(Timed(arm, replay, family, arm.name))
    return Verifier(suite, CASE, device).verify(timed, seed), arms


def test_sets_hold_different_values_so_a_copy_of_another_sets_output_is_wrong():
    first = {}

    def copies(x, weight, shift, *, out):
        if "out" not in first or out.data_ptr() == first["out"].data_ptr():
            first["out"] = plain(x, weight, shift, out=out)
        return out.copy_(first["out"])

    found, arms = verify({"copies": copies, "own": own})
    assert {name: failure.rule for name, failure in found.failures.items()} == {"copies": "timed-result"}
    values = {float(call.arguments["x"][0, 0]) for call in arms[0].calls}
    assert len(values) == 2


def test_one_wrong_set_of_many_is_found():
    count = []

    def one_of_them(x, weight, shift):
        count.append(1)
        return own(x, weight, shift) * (1.5 if len(count) % 5 == 0 else 1)

    found, _ = verify({"rare": one_of_them}, sets=5)
    assert found.failures["rare"].rule == "timed-result"


def test_transposed_overlapping_and_integer_inputs_are_redrawn_in_place():
    def draw(new, M):
        wide = new.normal(M, 2 * M, dtype="float32")
        return {
            "x": wide.t()[:M],
            "windows": wide.flatten().unfold(0, M, 1),
            "row": new.normal(M, dtype="float32").expand(M, M),
            "index": new.integers(M, low=0, high=M, dtype="int64"),
        }

    def variant(x, windows, row, index):
        return x[index] @ row + windows[0]

    suite = changed_suite(
        SUITE,
        draw=draw,
        buffers=lambda new: None,
        reference=lambda x, windows, row, index: variant(x, windows, row, index),
    )
    found, arms = verify({"variant": variant}, suite)
    assert not found.failures
    assert not found.note
    assert len({tuple(call.arguments["index"].tolist()) for call in arms[0].calls}) == 2


def test_a_draw_of_other_sizes_keeps_the_timed_sizes_and_says_so():
    def draw(new, M):
        cut = int(new.integers(1, low=0, high=10**6, dtype="int64"))
        return {
            "x": new.normal(M, M, dtype="float32"),
            "cut": cut % M,
            "offsets": new.tensor([0, cut % M, M], dtype="int64"),
            "salt": cut,
        }

    def variant(x, cut, offsets, salt):
        return x[: offsets[1]].sum() + x.sum() + salt

    suite = changed_suite(
        SUITE,
        draw=draw,
        buffers=lambda new: None,
        reference=lambda x, cut, offsets, salt: variant(x.double(), cut, offsets, salt),
    )
    found, arms = verify({"variant": variant}, suite, sets=2)
    assert not found.failures
    assert found.note == "checked after timing with the timed values of cut, offsets, salt: other draws differ in size"
    assert len({float(call.arguments["x"][0, 0]) for call in arms[0].calls}) == 2


def test_a_preparation_whose_shapes_follow_the_values_keeps_what_it_read():
    seeds = []

    def draw(new, M):
        inputs = SUITE.draw(new, M)
        # A draw of another seed has another number of values above the bound; the same seed draws the same again.
        seed = float(inputs["x"][0, 0])
        seeds.extend([seed] if seed not in seeds else [])
        inputs["weight"].flatten()[: seeds.index(seed) + 1] = 1.0
        inputs["weight"].flatten()[seeds.index(seed) + 1 :] = 0.0
        return inputs

    def sparse(weight):
        return {"values": weight[weight > 0.5], "at": (weight > 0.5).nonzero()}

    def variant(x, values, at, shift):
        weight = torch.zeros_like(x)
        weight[at[:, 0], at[:, 1]] = values
        return x @ weight + shift

    suite = changed_suite(
        SUITE,
        draw=draw,
        buffers=lambda new: None,
        reference=lambda x, weight, shift: x.double() @ torch.where(weight > 0.5, weight, 0).double() + shift,
    )
    found, arms = verify({"sparse": variant}, suite, prepare={"sparse": sparse})
    assert not found.failures
    assert "weight" in found.note
    assert len({float(call.arguments["x"][0, 0]) for call in arms[0].calls}) == 2


def test_state_that_a_variant_keeps_on_purpose_is_left_alone():
    workspace = torch.zeros(6, 6)
    counter = torch.zeros(1, dtype=torch.int32)

    def variant(x, weight, shift, *, out):
        torch.mm(x, weight, out=workspace)
        counter.add_(1)
        return out.copy_(workspace).add_(shift)

    found, _ = verify({"variant": variant})
    assert not found.failures
    assert int(counter) == 4 * 2 * 2
