"""An epoch of two sides: what they share, how often each is called, what the epoch says."""

import math
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from fakes import FakeDevice

from lockstep.gate.measuring.pairing import BASE, CLOCK_TOLERANCE, HEAD, QUICK, PairTimer, steady
from lockstep.gate.namespaces import Sides
from lockstep.suite.variants import Family
from lockstep.timing.arms.argument_rotation import ArgumentSet
from lockstep.timing.arms.shared_buffers import ArmFailed, Buffers, Contender
from lockstep.timing.clock_correction import at_common_clock, midmean
from lockstep.timing.device import Timing
from lockstep.timing.rounds import Pace
from lockstep.timing.rules.changed_shared_code import Trusted


@pytest.fixture
def sides(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    return Sides(["nothing"], base=tmp_path, head=tmp_path)


def sets(count=2):
    return [
        ArgumentSet({"x": torch.full((4,), float(one)), "w": torch.arange(6.0)}, torch.empty(4)) for one in range(count)
    ]


def contender(base, head, prepare=(None, None), scratch=({}, {}), sides=None):
    """Base and head of a variant, each with its function, its preparation and what it keeps between calls."""
    return [
        Contender(
            side,
            "v",
            Family({"v": function}, {"v": packing} if packing else {}, scratch=kept),
            side,
            partial(sides.active, side) if sides else nullcontext,
        )
        for side, function, packing, kept in zip((BASE, HEAD), (base, head), prepare, scratch, strict=True)
    ]


def run_epoch(pair, buffers, device, pace, per_call):
    timer = PairTimer(pair, device, pace, Trusted())
    timer.capturer.per_call |= per_call
    return timer.epoch(buffers)


def copy(x, *, out):
    return out.copy_(x)


def arguments(buffers, one):
    [base, head], shared = buffers.arms(one)
    return base.calls, head.calls, shared


def test_inputs_and_outputs_are_the_very_same(sides):
    base, head, shared = arguments(Buffers(sets(), 1), contender(copy, lambda x, w, *, out: out.copy_(x)))
    assert shared
    assert set(head[0].arguments) == {"x", "w", "out"}
    for one, other in zip(base, head, strict=True):
        assert one.arguments["x"] is other.arguments["x"]
        assert one.arguments["out"] is other.arguments["out"]


def test_what_both_keep_between_calls_is_laid_elsewhere_once_an_epoch_and_shared(sides):
    base, head = ({"counters": torch.zeros(8, dtype=torch.int32)} for _ in range(2))
    one = contender(copy, copy, scratch=(base, head))
    first = base["counters"]
    buffers = Buffers(sets(), 1)
    assert arguments(buffers, one)[2]
    assert head["counters"] is base["counters"]
    assert base["counters"] is not first
    # A second variant of the epoch finds them where graphs of the first have them.
    kept = base["counters"]
    arguments(buffers, one)
    assert base["counters"] is kept
    arguments(Buffers(sets(), 2), one)
    assert base["counters"] is not kept


def test_what_the_first_calls_allocate_is_shared_when_they_are_bound_again():
    base, head = {}, {}
    one, buffers = contender(copy, copy, scratch=(base, head)), Buffers(sets(), 1)
    assert arguments(buffers, one)[2]
    for kept in (base, head):
        kept["counters"] = torch.zeros(8)
    assert arguments(buffers, one)[2]
    assert base["counters"] is head["counters"]


def test_what_calls_write_is_restored_before_each_timed_replay(sides):
    """An operation in place meets in every timed replay what it met in the first."""
    device, met = FakeDevice(), []

    def adds(x):
        if device.timing:
            met.append(x[0].item())
        device.spend(1e-3)
        return x.add_(1.0)

    buffers = Buffers(sets(1), 1, ("x",))
    run_epoch(contender(adds, adds), buffers, device, QUICK, {})
    assert len(met) > 8
    assert set(met[-8:]) == {0.0}  # the first of them estimate the time of a call


OTHER_SCRATCH = [{"counters": torch.ones(8)}, {}, {"counters": torch.zeros(8), "more": torch.zeros(1)}]


@pytest.mark.parametrize("other", OTHER_SCRATCH)
def test_sides_that_keep_different_things_have_their_own(sides, other):
    base, head = {"counters": torch.zeros(8)}, dict(other)
    one = contender(copy, copy, scratch=(base, head))
    assert not arguments(Buffers(sets(), 1), one)[2]
    assert head.keys() == other.keys()
    assert all(torch.equal(head[name], other[name]) for name in other)


def test_what_both_prepare_alike_is_shared_and_what_they_do_not_is_each_sides_own(sides):
    def packed(p):
        return p

    def pack(w):
        return {"p": w.flip(0), "rows": 3}

    def same(w):
        return {"p": w.flip(0), "rows": 3}

    def other(w):
        return {"p": w * 2, "rows": 3}

    def wider(w):
        return {"p": w.flip(0).double(), "rows": 3}

    base, head, shared = arguments(Buffers(sets(), 1), contender(packed, packed, (pack, same)))
    assert shared
    assert base[0].arguments["p"] is head[0].arguments["p"]
    for packing in (other, wider):
        base, head, shared = arguments(Buffers(sets(), 1), contender(packed, packed, (pack, packing)))
        assert not shared
        assert torch.equal(base[1].arguments["p"], sets()[1].inputs["w"].flip(0))
        assert torch.equal(head[1].arguments["p"], packing(sets()[1].inputs["w"])["p"])


def test_a_preparation_that_raises_names_its_side(sides):
    def broken(w):
        raise KeyError("scales")

    with pytest.raises(ArmFailed, match="its preparation raised KeyError: 'scales'") as failed:
        Buffers(sets(), 1).arms(contender(copy, copy, (None, broken)))
    assert failed.value.arm == HEAD


def log_ratio(epoch):
    [ratios] = at_common_clock([epoch.pair])
    return midmean(ratios)


PACE = Pace(replay_s=1e-3, rounds=6, epoch_s=0.25, warmup_s=0.0)


class Timed:
    """Two sides whose calls take seconds on a fake clock, a CPU's or a GPU's."""

    def __init__(self, sides, seconds, kind="cuda"):
        self.device = FakeDevice()
        self.device.kind = kind
        self.sides = sides
        self.seconds = seconds
        self.calls = []

    def epoch(self, seed=1, pace=PACE):
        def call(side):
            def run(x):
                taken = self.seconds[side]
                self.device.spend(taken() if callable(taken) else taken)
                if self.device.timing:
                    self.calls.append(side)

            return run

        buffers = Buffers(sets(), seed)
        return run_epoch(contender(call(BASE), call(HEAD)), buffers, self.device, pace, {BASE: 1e-4, HEAD: 1e-4})


def test_the_ratio_is_head_over_base(sides):
    epoch = Timed(sides, {BASE: 1e-4, HEAD: 1.02e-4}).epoch()
    assert math.expm1(log_ratio(epoch)) == pytest.approx(0.02)
    assert (epoch.base_s, epoch.head_s) == pytest.approx((1e-4, 1.02e-4))
    assert (len(epoch.pair.own), epoch.shared) == (6, True)


def test_both_sides_make_as_many_calls_and_each_follows_itself_as_often_as_the_other(sides):
    timed = Timed(sides, {BASE: 1e-4, HEAD: 3e-4})
    timed.epoch()
    # Two sets, two graphs of three rotations: twelve calls a replay on either side, by the faster one.
    replays = [timed.calls[start] for start in range(0, len(timed.calls), 12)]
    assert all(len(set(timed.calls[start : start + 12])) == 1 for start in range(0, len(timed.calls), 12))
    assert [replays.count(side) for side in (BASE, HEAD)] == [8, 8]  # two rounds lead
    pairs = [tuple(replays[start : start + 2]) for start in range(0, 16, 2)]
    assert all(pair == back[::-1] for pair, back in zip(pairs[::2], pairs[1::2], strict=True))
    other = Timed(sides, timed.seconds)
    other.epoch(seed=2)
    assert other.calls[0] != timed.calls[0]


@pytest.mark.parametrize(("rounds", "epoch_s", "taken"), [(12, 0.0, 3), (12, 0.017, 5), (12, 1.0, 12), (2, 0.0, 2)])
def test_rounds_that_take_long_are_fewer_but_three_at_least(sides, rounds, epoch_s, taken):
    # A pair of replays of twelve calls on either side takes 2.4 milliseconds.
    epoch = Timed(sides, {BASE: 1e-4, HEAD: 1e-4}).epoch(pace=replace(PACE, rounds=rounds, epoch_s=epoch_s))
    assert len(epoch.pair.own) == taken


class Watching(FakeDevice):
    """Notes which sides it captures, how many calls at a time, and whose modules a replay runs with."""

    def __init__(self, kind="cuda"):
        super().__init__()
        self.kind = kind
        self.captured = []
        self.ran_with = []

    def capture(self, calls, pool):
        # A replay of a GPU's graph calls nothing; what a call does is seen while it is captured.
        before = len(self.ran_with)
        for call in calls:
            call()
        self.captured.append((self.ran_with[before], len(calls)))
        return super().capture(calls, pool)


@pytest.mark.parametrize(("seed", "first", "second"), [(1, HEAD, BASE), (2, BASE, HEAD), (4, HEAD, BASE)])
def test_no_side_is_always_captured_first_and_both_find_memory_that_is_laid_out(sides, seed, first, second):
    device = Watching()

    def call(side):
        def run(x):
            device.spend(1e-4)
            device.ran_with.append(side)

        return run

    one, buffers = contender(call(BASE), call(HEAD)), Buffers(sets(), seed)
    run_epoch(one, buffers, device, PACE, {BASE: 1e-4, HEAD: 1e-4})
    # Two rotations of two sets, so that one output more than a rotation's is alive; then three rotations each.
    assert device.captured == [(first, 4), (first, 6), (second, 6)]


@pytest.mark.parametrize(("kind", "found"), [("cuda", {None}), ("cpu", {BASE, HEAD})])
def test_modules_are_switched_only_where_a_replay_runs_python(sides, kind, found):
    device = FakeDevice()
    device.kind = kind
    seen = set()

    def run(x):
        device.spend(1e-4)
        if device.timing:
            seen.add(next((side for side, root in roots.items() if sides.root == root), None))

    roots = {side: sides.roots[side] / side for side in (BASE, HEAD)}
    sides.roots = roots
    run_epoch(contender(run, run, sides=sides), Buffers(sets(), 1), device, PACE, {BASE: 1e-4, HEAD: 1e-4})
    assert seen == found


def test_a_disturbed_pair_does_not_move_the_ratio(sides):
    taken = iter([1e-4] * 97 + [9e-4] * 10 + [1e-4] * 1000)
    epoch = Timed(sides, {BASE: 1e-4, HEAD: lambda: next(taken)}).epoch()
    assert log_ratio(epoch) == pytest.approx(0.0)


def test_a_cpu_is_judged_by_its_fastest_replays(sides):
    chance = torch.Generator().manual_seed(1)
    noisy = {side: lambda: 1e-4 * (1 + float(torch.rand(1, generator=chance) > 0.7)) for side in (BASE, HEAD)}
    epoch = Timed(sides, noisy, kind="cpu").epoch(pace=Pace(1e-4, 25, 0.25, 0.0))
    assert log_ratio(epoch) == pytest.approx(0.0)


@pytest.mark.parametrize("way", [1, -1])
def test_a_round_whose_clock_changed_between_the_two_is_void(way):
    def rounds(*strays):
        mine = [Timing(1e-3, 1400.0 * math.exp(way * stray)) for stray in strays]
        return steady(mine, [Timing(1e-3, 1500.0)] * len(mine))

    nearly, more = 0.99 * CLOCK_TOLERANCE, 1.01 * CLOCK_TOLERANCE
    assert rounds(0.0, 0.0, 0.0, nearly, more) == [True, True, True, True, False]
    assert rounds(0.0, 0.0, more) == [True, True, False]
    # Of two nobody can tell which one is usual.
    assert rounds(0.0, more) == [True, True]
    assert rounds(0.0, 0.0, math.nan, more) == [True, True, True, False]
    assert rounds(0.0, math.nan, more) == [True, True, True]
