"""Arms: who shares which tensors, where they lie, and that cold means cold."""

import itertools
import random

import pytest
import torch
from fakes import FakeDevice, steady_controls
from made_suites import changed_suite, make_suite

from lockstep import Cost, grid
from lockstep.record.model import TWIN
from lockstep.suite.inputs import tensors_of
from lockstep.suite.variants import Family
from lockstep.timing.arms import argument_rotation
from lockstep.timing.arms.argument_rotation import (
    CACHE_FACTOR,
    MOST_SETS,
    PLACEMENT_BYTES,
    PLACEMENTS,
    ROTATION_S,
    draw_sets,
    set_count,
    size_of,
)
from lockstep.timing.arms.shared_buffers import make_arms
from lockstep.timing.epochs import Plan
from lockstep.timing.measure import Measurer

[CASE] = grid(M=64, N=256)

SUITE = make_suite(
    family="arms_family",
    module="arms_package.arms_family",
    quick=(CASE,),
    draw=lambda new, M, N: {"x": new.normal(M, N, dtype="float32"), "scale": 2.0},
    buffers=lambda new, M, N: new.empty(M, N, dtype="float32"),
    reference=lambda x, scale: scale * x.double(),
    cost=lambda M, N: Cost(M * N, 8 * M * N),
)


class Notes:
    """Variants that note the arguments of every call."""

    def __init__(self):
        self.calls = []

    def family(self):
        def plain(x, scale, *, out):
            self.calls.append(("plain", x, None, out))
            return torch.mul(x, scale, out=out)

        def packed(x, twice, *, out):
            self.calls.append(("packed", x, twice, out))
            return out.copy_(twice)

        return Family({"plain": plain, "packed": packed}, {"packed": lambda x: {"twice": 2 * x}})


def place(tensor):
    return tensor.storage_offset()


def address(tensor):
    return tensor.data_ptr()


def replayed(notes, l2, cache_bytes, times=2):
    """Calls of one replay of each variant, and the number of sets."""
    device = FakeDevice(cache_bytes)
    smallest = 2 * 4 * CASE["M"] * CASE["N"]
    count = set_count(smallest, smallest, 0.0, device, l2)
    family = notes.family()
    sets = draw_sets(SUITE, CASE, device, count, seed=1)
    for arm in make_arms({name: name for name in family.variants}, family, sets, 1):
        device.capture(arm.calls * times, device.new_pool())()
    return count


@pytest.mark.parametrize("cache_bytes", [1, 100_000, 1_000_000])
def test_a_cold_rotation_touches_twice_the_cache_and_two_sets_at_least(cache_bytes):
    notes = Notes()
    count = replayed(notes, "cold", cache_bytes)
    first = notes.calls[:count]
    tensors = {address(tensor): tensor for _, x, _, out in first for tensor in (x, out)}
    assert size_of(tensors.values()) >= CACHE_FACTOR * cache_bytes
    assert size_of(tensors.values()) <= CACHE_FACTOR * cache_bytes + 2 * size_of([first[0][1], first[0][3]])
    assert count >= 2


def test_every_call_of_a_rotation_gets_another_set_and_then_it_repeats():
    notes = Notes()
    count = replayed(notes, "cold", 500_000)
    for name in ("plain", "packed"):
        mine = [[address(t) for t in tensors_of(call[1:])] for call in notes.calls if call[0] == name]
        assert len(mine) == 2 * count
        assert mine[:count] == mine[count:]
        everything = list(itertools.chain(*mine[:count]))
        assert len(set(everything)) == len(everything)


def test_a_warm_replay_calls_one_set():
    notes = Notes()
    assert replayed(notes, "warm", 500_000) == 1
    assert len({address(call[1]) for call in notes.calls}) == 1


def test_a_case_too_small_to_be_cold_is_refused():
    device = FakeDevice(cache_bytes=1000 * MOST_SETS)
    assert set_count(CACHE_FACTOR * 1000, 2000, 0.0, device, "cold") == MOST_SETS
    with pytest.raises(NotImplementedError, match=r"too small for a cold series: with 1990 bytes a call, \d+ arg"):
        set_count(1990, 2000, 0.0, device, "cold")
    assert set_count(1, 1, 1e-6, device, "warm") == 1


def test_a_cold_replay_averages_over_many_placements_within_limits():
    device = FakeDevice(cache_bytes=1000)

    def count(whole, floor_s):
        return set_count(1000, whole, floor_s, device, "cold")

    assert count(1000, 0.0) == 2
    assert count(1000, 1e-9) == PLACEMENTS
    assert count(PLACEMENT_BYTES // 7, 1e-9) == 7
    assert count(1000, ROTATION_S / 5.5) == 5
    device.memory_bytes = 5000
    assert count(1000, 1e-9) == 5
    # The cache asks for two whatever the limits say.
    assert count(PLACEMENT_BYTES, ROTATION_S) == 2


def test_bytes_are_those_of_every_tensor():
    assert size_of([torch.empty(3, dtype=torch.int8), torch.empty(2), torch.empty(1)]) == 15


def test_arms_share_inputs_and_outputs_but_not_what_is_prepared():
    notes = Notes()
    count = replayed(notes, "cold", 200_000)
    plain, packed = notes.calls[:count], notes.calls[2 * count : 3 * count]
    for mine, theirs in zip(plain, packed, strict=True):
        assert (address(mine[1]), address(mine[3])) == (address(theirs[1]), address(theirs[3]))
        assert address(theirs[2]) not in (address(mine[1]), address(mine[3]))
        assert torch.equal(theirs[2], 2 * mine[1])


def test_inputs_that_no_call_takes_are_not_copied_for_each_set():
    one, other = draw_sets(SUITE, CASE, FakeDevice(), 2, seed=1, used=())
    assert all(one.inputs[name] is other.inputs[name] for name in one.inputs)
    one, other = draw_sets(SUITE, CASE, FakeDevice(), 2, seed=1)
    assert any(one.inputs[name] is not other.inputs[name] for name in one.inputs)


def test_a_part_of_a_larger_tensor_is_placed_with_its_gaps():
    whole = torch.arange(60.0).reshape(5, 12)
    for part in (whole[1:4, 3:7], whole[:, 2], whole[4:4], whole[2, 5]):
        placed = argument_rotation.place(part, random.Random(1))
        assert (placed.shape, placed.stride()) == (part.shape, part.stride())
        assert torch.equal(placed, part)
        placed.fill_(-1)
        assert torch.equal(whole, torch.arange(60.0).reshape(5, 12))


def test_an_epoch_is_drawn_and_prepared_once_and_lies_in_many_places():
    drawn, packed = [], []

    def draw(new, M, N):
        drawn.append(1)
        return {"x": new.normal(M, N, dtype="float32")}

    def pack(x):
        packed.append(1)
        return {"twice": 2 * x}

    def one(twice):
        return twice

    sets = draw_sets(changed_suite(SUITE, draw=draw), CASE, FakeDevice(), 5, seed=1)
    [arm, other] = make_arms({"a": "v", "b": "w"}, Family({"v": one, "w": one}, {"v": pack, "w": pack}), sets, 1)
    assert (len(drawn), len(packed)) == (1, 1)
    assert [call.arguments["twice"] for call in arm.calls] == [call.arguments["twice"] for call in other.calls]
    tensors = [*(one.inputs["x"] for one in sets), *(call.arguments["twice"] for call in arm.calls)]
    assert len({address(tensor) for tensor in tensors}) == 10
    assert all(torch.equal(tensor, tensors[0]) for tensor in tensors[:5])
    assert all(torch.equal(tensor, 2 * tensors[0]) for tensor in tensors[5:])


def test_what_variants_keep_between_calls_is_laid_elsewhere_for_each_draw():
    notes = Notes()
    counters = torch.zeros(1000, dtype=torch.int32)
    family = Family(
        notes.family().variants, {}, scratch={"counters": counters, "traced": torch.zeros(3, device="meta")}
    )
    kept = []
    for seed in (1, 2, 1):
        make_arms({"plain": "plain"}, family, draw_sets(SUITE, CASE, FakeDevice(), 1, seed), seed)
        kept.append(family.scratch["counters"])
    assert place(kept[0]) == place(kept[2]) != place(kept[1])
    assert all(torch.equal(one, counters) and one is not counters for one in kept)
    assert family.scratch["traced"].device.type == "meta"


def test_tensors_keep_values_and_strides_wherever_they_are_put():
    turned = make_suite(
        quick=(CASE,),
        draw=lambda new: {"x": torch.arange(12.0).reshape(3, 4).t(), "row": torch.ones(4).expand(3, 4)},
    )
    places = set()
    for seed in range(8):
        one, other = draw_sets(turned, CASE, FakeDevice(), 2, seed)
        assert one.out is None
        assert one.inputs["x"].stride() == (1, 4)
        assert torch.equal(one.inputs["x"], torch.arange(12.0).reshape(3, 4).t())
        assert one.inputs["row"].stride() == (0, 1)
        assert torch.equal(one.inputs["row"], torch.ones(3, 4))
        assert len({address(tensor) for given in (one, other) for tensor in given.inputs.values()}) == 4
        places.add(place(one.inputs["x"]))
        assert address(one.inputs["x"]) % 64 == 0
    assert len(places) > 1


@pytest.fixture
def measured(monkeypatch):
    """Measure SUITE's case; calls of the timed part, told apart by epoch."""

    def measure(variants=("plain", "packed"), twins=(), epochs=4):
        notes = Notes()
        device = FakeDevice()
        epoch_starts = []
        plan = Plan(rounds=1, replay_s=1e-9, warmup_s=0, min_epochs=epochs, max_epochs=epochs)

        def listener(stage, variant):
            if stage == "time":
                epoch_starts.append(len(notes.calls))

        measurer = Measurer(
            device, plan, listener=listener, load=lambda suite: notes.family(), _controls=steady_controls(device)
        )
        original = FakeDevice.time

        def time(self, replays):
            # Every replay takes a tick, so that rates exist.
            return original(self, [lambda replay=replay: (replay(), self.spend(1e-6)) for replay in replays])

        monkeypatch.setattr(FakeDevice, "time", time)
        records = measurer.measure(SUITE, CASE, "warm", variants, twins=twins)
        assert {record.state for record in records} == {"ok"}, records
        ends = [*epoch_starts[1:], len(notes.calls)]
        return records, [notes.calls[a:b] for a, b in zip(epoch_starts, ends, strict=True)]

    return measure


def places(epochs):
    return [sorted({(name, place(x), place(out)) for name, x, _, out in calls}) for calls in epochs]


def test_buffers_lie_elsewhere_in_each_epoch_and_in_the_same_places_in_each_run(measured):
    _, first = measured()
    _, second = measured()
    _, alone = measured(variants=("plain",))
    assert len(first) == 4
    assert all(len({(x, out) for _, x, out in epoch}) == 1 for epoch in places(first))
    assert len({epoch[0][1:] for epoch in places(first)}) > 1
    assert places(first) == places(second)
    assert [epoch[-1][1:] for epoch in places(first)] == [epoch[-1][1:] for epoch in places(alone)]
    prepared = [{place(twice) for _, _, twice, _ in calls if twice is not None} for calls in first]
    assert prepared == [{place(twice) for _, _, twice, _ in calls if twice is not None} for calls in second]


def test_twins_share_even_what_is_prepared(measured):
    records, epochs = measured(twins=("packed",))
    assert {record.variant for record in records} == {"plain", "packed", "packed" + TWIN}
    for calls in epochs:
        assert len({address(twice) for _, _, twice, _ in calls if twice is not None}) == 1
    twin = next(record for record in records if record.variant.endswith(TWIN))
    assert twin.speedup.value == pytest.approx(1.0)
