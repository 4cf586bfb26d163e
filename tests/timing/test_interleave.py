"""The comparison, on a device whose every second a test decides."""

import itertools
import math
import random
from dataclasses import replace

import pytest
import torch
from fakes import Bench, scripted_controls, steady_controls

from lockstep.record.model import TWIN, Clocks
from lockstep.timing.arms.verify_replays import Verified
from lockstep.timing.costs.meter import CostMeter, Metered
from lockstep.timing.device import DeviceLost, Timing
from lockstep.timing.epochs import EPOCHS_A_CONTROL, Comparison, Plan
from lockstep.timing.estimates import MOST_SAMPLES
from lockstep.timing.graph_capture import CaptureError
from lockstep.timing.intervals import detectable
from lockstep.timing.rounds import LEAD_ROUNDS
from lockstep.timing.rules.rule import Disqualified, Rule

#: One call fills a replay; no waiting.
PLAN = Plan(replay_s=1e-3, rounds=8, min_epochs=4, max_epochs=4, warmup_s=0.0)


def run(bench, *, plan=PLAN, baseline="base", controls=None, names=None, seed=1, **rest):
    controls = controls or steady_controls(bench.device)
    arms = names or list(bench.seconds)
    for name in rest.keys() & {"restore", "listen", "verify"}:
        setattr(bench, name, rest.pop(name))
    return Comparison(bench, arms, baseline, bench.device, controls, plan, seed, **rest).run()


def noisy(centre, spread, seed=1):
    chance = random.Random(seed)
    return lambda: centre * math.exp(chance.gauss(0, spread))


def by_epoch(centre, factors):
    """Seconds that change from epoch to epoch, told by the number of draws so far."""
    return lambda bench: lambda: centre * factors[len(bench.drawn) - 1]


def test_an_outcome_tells_how_the_machine_was(monkeypatch):
    bench = Bench({"base": 1e-3, "b": 1e-3})
    bench.clock = lambda name: (1500.0, 1480.0, 1450.0, 1500.0)[len(bench.drawn) - 1]
    told = Clocks(temperature_c=60.0, power_w=500.0, reasons=("sw_power_cap",))
    monkeypatch.setattr(bench.device, "sample_clocks", lambda: told)
    assert run(bench).outcomes["b"].clocks == replace(
        told, sm_mhz=1490.0, sm_mhz_low=1450.0, told_mhz=pytest.approx(1482.4, abs=0.1)
    )


def test_a_ratio_is_told_at_the_usual_clocks_and_a_twin_at_its_variants():
    """A product that the clock slows, beside a copy that it does not; the chip is 2 % slower than it was usually."""
    met = noisy(1470.0, 0.01)
    bench = Bench({})

    def copy():
        bench.now = met()
        return 1e-3

    def product():
        bench.now = met()
        return 1.5 / bench.now

    bench.seconds = {"base": copy, "b": product, "b" + TWIN: product}
    bench.clock = lambda name: bench.now
    usual = run(bench, reference_mhz={"base": 1500.0, "b": 1500.0})
    assert usual.outcomes["b"].speedup.value == pytest.approx(1.0, abs=2e-3)
    assert usual.outcomes["b"].clocks.told_mhz == 1500.0
    assert usual.outcomes["b" + TWIN].speedup.value == pytest.approx(1.0, abs=2e-3)
    assert usual.outcomes["b" + TWIN].clocks.told_mhz == pytest.approx(1470.0, rel=5e-3)
    here = run(bench).outcomes["b"]
    assert here.speedup.value == pytest.approx(0.98, abs=2e-3)
    assert here.clocks.told_mhz == pytest.approx(1470.0, rel=2e-3)


def test_what_would_show_is_the_ratios_and_the_times_where_there_is_none():
    factors = (1.0, 1.01, 1.02, 1.03)
    drift = detectable([math.log(factor) for factor in factors])
    bench = Bench({})
    bench.seconds = {name: by_epoch(1e-3, factors)(bench) for name in ("base", "b")}
    outcomes = run(bench).outcomes
    assert outcomes["base"].mde == pytest.approx(drift)
    assert outcomes["b"].mde == pytest.approx(0, abs=1e-9)
    bench = Bench({})
    bench.seconds = {"b": by_epoch(1e-3, factors)(bench)}
    alone = run(bench).outcomes["b"]
    assert alone.mde == pytest.approx(drift)
    assert (alone.speedup, alone.converged) == (None, True)


def test_seconds_are_per_call_and_ratios_are_baseline_over_arm():
    bench = Bench({"base": 4e-5, "half": 2e-5}, sets=3)
    outcomes = run(bench).outcomes
    assert outcomes["half"].latency.value == pytest.approx(2e-5)
    assert outcomes["base"].latency.value == pytest.approx(4e-5)
    assert outcomes["half"].speedup.value == pytest.approx(2.0)
    assert outcomes["base"].speedup.value == 1.0


def test_a_replay_lasts_long_enough_and_goes_through_all_sets():
    bench = Bench({"base": 4e-5, "half": 2e-5}, sets=3)
    run(bench, plan=replace(PLAN, rounds=1))
    # Before: two probes of one rotation of base, two of one and of eight rotations of half, which is too short to tell.
    calls = [len(list(group)) for _, group in itertools.groupby(bench.order[6 + 6 + 48 :])]
    # 1 ms of 40 µs calls in threes is two graphs of 15 calls, of 20 µs calls two of 27.
    assert set(calls) <= {30, 54, 2 * 30, 2 * 54}
    assert {30, 54} & set(calls)


def test_a_long_replay_launches_a_short_graph_again():
    bench = Bench({"base": 1e-3, "b": 1e-3}, sets=2)
    captured = []
    capture = bench.device.capture
    bench.device.capture = lambda calls, pool: captured.append(len(calls)) or capture(calls, pool)
    run(bench, plan=replace(PLAN, replay_s=1e-2, rounds=1))
    # Capturing costs time for every call; 10 ms of 1 ms calls are five launches of one rotation.
    assert set(captured) == {2}
    assert {len(list(group)) for _, group in itertools.groupby(bench.order[8:])} <= {10, 20}


def test_every_second_round_is_the_one_before_flipped_and_neighbours_change():
    bench = Bench(dict.fromkeys(("base", "b", "c", "d"), 1e-3))
    run(bench, plan=replace(PLAN, rounds=4, min_epochs=6, max_epochs=6))
    # The first epoch learns each arm's time from two calls.
    order = bench.order[8:]
    rounds = [tuple(order[i : i + 4]) for i in range(0, len(order), 4)]
    assert len(rounds) == 6 * (LEAD_ROUNDS + 4)
    for there, back in zip(rounds[::2], rounds[1::2], strict=True):
        assert set(there) == set(bench.seconds)
        assert back == there[::-1]
    assert len(set(rounds[::2])) > 4


def test_buffers_are_fresh_each_epoch_and_the_same_in_each_run_whatever_else_is_measured():
    seeds = []
    for names in (["base", "b"], ["base", "b"], ["base", "b", "c", "d"]):
        bench = Bench(dict.fromkeys(names, 1e-3))
        run(bench)
        seeds.append([seed for seed, _ in bench.drawn])
    assert len(set(seeds[0])) == len(seeds[0]) == PLAN.min_epochs
    # A commit that adds a variant must not move the buffers of all others.
    assert seeds[0] == seeds[1] == seeds[2]


def test_measuring_stops_at_the_first_look_that_is_narrow():
    bench = Bench({"base": 1e-3, "same": 1e-3})
    outcome = run(bench).outcomes["same"]
    assert (outcome.epochs, outcome.converged) == (PLAN.min_epochs, True)


@pytest.mark.parametrize(
    ("epochs", "taken"),
    # The last would be more than 1.5 times as wide as asked after thirty epochs too.
    [([1, 1.02, 1, 1] + [1.001] * 30, range(6, 25)), ([1, 1.018] * 15, [30]), ([1, 1.03] * 15, [PLAN.min_epochs])],
)
def test_measuring_goes_on_while_the_ratio_is_wide_and_may_become_narrow(epochs, taken):
    plan = replace(PLAN, max_epochs=30)
    bench = Bench({"base": 1e-3})
    bench.seconds["wide"] = by_epoch(1e-3, epochs)(bench)
    outcome = run(bench, plan=plan).outcomes["wide"]
    assert outcome.epochs in taken
    assert outcome.converged == (outcome.epochs in range(6, 25))
    assert outcome.converged == (math.log(outcome.speedup.high / outcome.speedup.low) / 2 <= plan.width)


def test_the_budget_ends_it_but_not_before_the_least_number_of_epochs():
    bench = Bench({"base": 1e-3})
    bench.seconds["wide"] = by_epoch(1e-3, [1, 1.018] * 15)(bench)
    outcome = run(bench, plan=replace(PLAN, budget_s=0.0, max_epochs=30)).outcomes["wide"]
    assert (outcome.epochs, outcome.converged) == (PLAN.min_epochs, False)


def test_slow_arms_get_fewer_rounds_but_three():
    def rounds(seconds):
        bench = Bench({"base": seconds, "b": seconds})
        return run(bench).outcomes["b"].rounds / PLAN.min_epochs

    assert rounds(1e-3) == PLAN.rounds
    # Rounds of 0.16 s, the lead among them.
    assert rounds(0.08) == int(PLAN.budget_s / PLAN.min_epochs / 0.16) - LEAD_ROUNDS == 7
    assert rounds(5.0) == 3


def test_the_first_rounds_of_an_epoch_do_not_count():
    bench = Bench({"base": 1e-3})
    # Four epochs of two rounds; before the first, three replays tell the time and one warms up.
    slow_at_first = [9e-3, 9e-3, 9e-3, 9e-3, *[9e-3] * LEAD_ROUNDS, 2e-3, 2e-3]
    later = [*[9e-3] * LEAD_ROUNDS, 2e-3, 2e-3]
    bench.seconds["b"] = iter(slow_at_first + later * 3).__next__
    outcome = run(bench, plan=replace(PLAN, replay_s=1e-9, rounds=2)).outcomes["b"]
    assert set(outcome.latency_samples) == {2e-3}
    assert outcome.rounds == 4 * 2


def test_noise_within_an_epoch_is_taken_out_by_the_median():
    bench = Bench({"base": noisy(1e-3, 0.01, 1), "b": noisy(1e-3, 0.01, 2)})
    bench.seconds["b"] = itertools.cycle([1e-3] * 7 + [9e-3]).__next__
    assert run(bench).outcomes["b"].latency.value == pytest.approx(1e-3)


def test_an_epoch_in_which_a_control_moved_is_void():
    bench = Bench({"base": 1e-3, "b": 1e-3})
    # Each taking runs three replays; after the second three epochs the control is twice as slow.
    controls = scripted_controls(bench.device, itertools.chain([1.0] * 6, itertools.repeat(2.0)).__next__)
    comparison = run(bench, controls=controls, plan=replace(PLAN, min_epochs=7, max_epochs=7))
    outcome = comparison.outcomes["b"]
    assert (outcome.epochs, outcome.voided) == (7, EPOCHS_A_CONTROL * PLAN.rounds)
    assert len(bench.drawn) == 7 + EPOCHS_A_CONTROL
    assert "3 epochs voided: control copy moved by 100" in comparison.note


@pytest.mark.parametrize(("epochs", "takings"), [(1, 2), (3, 2), (4, 3), (9, 4)])
def test_controls_are_taken_first_now_and_then_and_last(epochs, takings):
    bench, taken = Bench({"base": 1e-3, "b": 1e-3}), itertools.count()
    controls = scripted_controls(bench.device, lambda: next(taken) * 0.0 + 1.0)
    run(bench, controls=controls, plan=replace(PLAN, min_epochs=epochs, max_epochs=epochs))
    assert next(taken) == 3 * takings


def test_a_machine_that_never_settles_is_measured_and_marked():
    bench = Bench({"base": 1e-3, "b": 1e-3})
    seconds = itertools.cycle([1.0] * 3 + [2.0] * 3)
    comparison = run(bench, controls=scripted_controls(bench.device, seconds.__next__), plan=replace(PLAN, rounds=2))
    assert comparison.outcomes["b"].epochs == PLAN.min_epochs
    # Three epochs and the fourth, which had controls of its own before it was repeated.
    assert "epochs voided" in comparison.note
    assert PLAN.min_epochs <= int(comparison.note.split()[0]) < PLAN.min_epochs + EPOCHS_A_CONTROL


class Pause(CostMeter):
    """A cost whose measurement leaves the GPU idle. A control is slow until an arm has run again."""

    name = "host"

    def __init__(self, bench, seconds=0.0):
        super().__init__()
        self.bench, self.seconds, self.drawn = bench, seconds, []
        bench.idle = False

    def epoch(self, arms, listener, restore):
        self.drawn.append(len(self.bench.drawn))
        self.bench.idle = True
        return Metered({arm.name: [Timing(1e-5)] for arm in arms})


def paused(**plan):
    """A measurement with a cost that leaves the GPU idle, and the meter of this cost."""
    bench = Bench({})

    def works():
        bench.idle = False
        return 1e-3

    bench.seconds = {"base": works, "b": works}
    meter = Pause(bench)
    controls = scripted_controls(bench.device, lambda: 1.4 if bench.idle else 1.0)
    return run(bench, controls=controls, plan=replace(PLAN, **plan), meters=[meter]), meter


def test_a_control_is_timed_right_after_the_rounds_and_never_after_the_pauses_of_a_cost():
    comparison, meter = paused(min_epochs=9, max_epochs=9)
    assert (comparison.note, comparison.outcomes["b"].voided) == ("", 0)
    assert meter.drawn == [1, 3, 5, 7, 9]
    assert meter.estimates("b")["host"].epochs == 5


def test_an_epoch_that_is_void_for_the_latency_is_void_for_the_costs():
    bench = Bench({"base": 1e-3, "b": 1e-3})
    controls = scripted_controls(bench.device, itertools.chain([1.0] * 3, itertools.repeat(2.0)).__next__)
    meter = Pause(bench)
    comparison = run(bench, controls=controls, plan=replace(PLAN, min_epochs=9, max_epochs=9), meters=[meter])
    assert comparison.note.startswith("3 epochs voided")
    # The first of the void epochs was measured before the control moved, the third was not measured any more. The last
    # epoch is measured because it is verified.
    assert (meter.drawn, meter.estimates("b")["host"].epochs) == ([1, 5, 7, 9, 11, 12], 5)


def test_costs_leave_the_budget_of_the_rounds_as_it_is(monkeypatch):
    bench = Bench({"base": 1e-3})
    bench.seconds["wide"] = by_epoch(1e-3, [1, 1.018] * 15)(bench)
    meter = Pause(bench, 1.0)
    monkeypatch.setattr("lockstep.timing.epochs.monotonic", lambda: len(meter.drawn) * meter.seconds)
    outcome = run(bench, plan=replace(PLAN, max_epochs=30), meters=[meter]).outcomes["wide"]
    assert outcome.epochs == len(meter.drawn) == 30, "the budget is six seconds"


def test_a_round_in_which_the_clock_changed_between_the_arms_counts_at_the_clock_of_the_others():
    bench = Bench({"base": 1e-3})
    clocks, now = itertools.cycle([1000.0, 1500.0]), {"b": 1500.0}

    def bound():
        now["b"] = next(clocks) if bench.device.timing and bench.device.timed[-1] > 1 else 1500.0
        return 1.5 / now["b"]

    bench.seconds["b"] = bound
    bench.clock = lambda name: now["b"] if name == "b" else 1500.0
    outcome = run(bench, plan=replace(PLAN, max_epochs=4)).outcomes["b"]
    assert (outcome.rounds, outcome.voided) == (4 * PLAN.rounds, 0)
    # The mean clock of the two, in logarithms; what base takes does not depend on it.
    assert outcome.speedup.value == pytest.approx(math.sqrt(1000 * 1500) / 1500, rel=1e-3)
    assert outcome.speedup.high / outcome.speedup.low < 1.001
    assert (outcome.clocks.sm_mhz, outcome.clocks.sm_mhz_low) == (1250.0, 1000.0)


def test_arms_may_run_at_different_clocks():
    bench = Bench({"base": 1e-3, "b": 1e-3})
    bench.clock = lambda name: 1000.0 if name == "b" else 1500.0
    outcome = run(bench).outcomes["b"]
    assert outcome.voided == 0
    assert outcome.clocks.sm_mhz == 1000.0


def test_a_ratio_is_told_at_the_clock_of_its_two_arms():
    """Others that draw more power run at a lower clock, of which the two know nothing."""
    chance, now = random.Random(1), {"mhz": 1800.0}

    def bound():
        now["mhz"] = 1800.0 + chance.uniform(-30, 30)
        return 1.8 / now["mhz"]

    bench = Bench({"base": 1e-3, "b": bound, "hungry": 1e-3, "hungrier": 1e-3})
    bench.clock = lambda name: {"base": 1800.0, "b": now["mhz"]}.get(name, 1200.0)
    assert run(bench, plan=replace(PLAN, replay_s=1e-9)).outcomes["b"].speedup.value == pytest.approx(1, abs=5e-3)


def test_a_twin_is_compared_with_its_variant():
    bench = Bench({"base": 3e-3, "b": 1e-3, "b" + TWIN: 1.01e-3})
    outcomes = run(bench).outcomes
    assert outcomes["b"].speedup.value == pytest.approx(3)
    assert outcomes["b" + TWIN].speedup.value == pytest.approx(1 / 1.01)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CaptureError("cannot be captured in a CUDA graph: it synchronises"), "it synchronises"),
        (NotImplementedError("needs Blackwell"), "needs Blackwell"),
        (torch.cuda.OutOfMemoryError("tried to allocate"), "out of memory"),
    ],
)
def test_an_arm_that_cannot_be_captured_is_dropped_alone(error, reason):
    bench = Bench(dict.fromkeys(("base", "b", "c"), 1e-3))
    bench.fails["b"] = error
    comparison = run(bench)
    assert set(comparison.outcomes) == {"base", "c"}
    assert list(comparison.failures) == ["b"]
    assert reason in str(comparison.failures["b"])
    assert comparison.outcomes["c"].speedup.value == 1.0
    # It is not drawn again in later epochs, and memory is given back.
    assert all("b" not in names for _, names in bench.drawn[1:])
    assert bench.device.released == (1 if isinstance(error, torch.cuda.OutOfMemoryError) else 0)


def test_an_arm_that_breaks_the_device_while_it_is_captured_ends_the_process():
    bench = Bench({"base": 1e-3, "b" + TWIN: 1e-3})
    bench.fails["b" + TWIN] = CaptureError("an illegal access")
    bench.device.healthy = lambda: False
    with pytest.raises(DeviceLost, match="an illegal access") as lost:
        run(bench)
    assert lost.value.variant == "b"


def test_without_the_baseline_there_are_latencies_and_no_ratios():
    bench = Bench({"base": 1e-3, "b": 2e-3})
    bench.fails["base"] = CaptureError("no")
    comparison = run(bench)
    assert comparison.outcomes["b"].speedup is None
    assert comparison.outcomes["b"].latency.value == pytest.approx(2e-3)


def test_nothing_left_to_measure_ends_it():
    bench = Bench({"base": 1e-3})
    bench.fails["base"] = CaptureError("no")
    comparison = run(bench)
    assert (comparison.outcomes, list(comparison.failures)) == ({}, ["base"])


def test_few_samples_are_kept_of_all_epochs():
    bench = Bench({"base": 1e-3})
    bench.seconds["b"] = lambda: 1e-3 * len(bench.drawn)
    samples = run(bench, plan=replace(PLAN, rounds=30)).outcomes["b"].latency_samples
    assert 10 <= len(samples) <= MOST_SAMPLES
    assert {round(1e3 * sample) for sample in samples} >= {1, 2, 3, 4}


def test_a_cpu_takes_fewer_epochs_and_a_gpu_an_even_number_of_rounds():
    bench = Bench({"base": 1e-3})
    bench.device.kind = "cpu"
    cpu = Plan.on(bench.device)
    bench.device.kind = "cuda"
    gpu = Plan.on(bench.device)
    assert cpu.max_epochs < gpu.min_epochs
    assert gpu.rounds % 2 == cpu.rounds % 2 == 0


def test_the_last_epoch_is_verified_and_an_earlier_one_that_no_arm_can_foresee():
    early = set()
    for _ in range(40):
        bench = Bench({"base": 1e-3, "b": 1e-3})
        verified = []

        def verify(seed, replays, bench=bench, verified=verified):
            assert seed == bench.drawn[-1][0]
            assert {cost: set(mine) for cost, mine in replays.items()} == {"": {"base", "b"}}
            verified.append(len(bench.drawn))
            return Verified({})

        run(bench, verify=verify)
        first, last = verified
        assert last == 4
        early.add(first)
    assert early == {1, 2, 3}


def test_an_arm_that_fails_its_verification_loses_its_number_and_a_baseline_all_ratios():
    for failing, ratio in (("b", 1.0), ("base", None)):
        bench = Bench(dict.fromkeys(("base", "b", "c"), 1e-3))
        failure = Disqualified(Rule.TIMED_RESULT, "wrong")

        def verify(seed, replays, failing=failing, failure=failure):
            return Verified({failing: failure} if failing in replays[""] else {}, "with two draws")

        comparison = run(bench, verify=verify)
        assert comparison.failures == {failing: failure}
        assert set(comparison.outcomes) == {"base", "b", "c"} - {failing}
        assert getattr(comparison.outcomes["c"].speedup, "value", None) == ratio
        assert comparison.note == "with two draws"
