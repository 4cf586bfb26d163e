"""Series that switch between a few levels: named, not told of, and still told of when all levels move."""

import numpy as np
import pytest

from lockstep.detect import Trend, analyse, analyse_many
from lockstep.detect.modes import explained, modes

FLEETS = {"two": (0.0, 0.2), "three": (0.0, 0.15, 0.4), "four": (0.0, 0.12, 0.3, 0.5)}


def fleet(seed, levels, stay, length=120, noise=0.006, step=None):
    """Log values of a fleet: each commit goes to the machine before with ``1 - 1 / stay``, or to any."""
    rng = np.random.default_rng(seed)
    machine = np.empty(length, dtype=int)
    for at in range(length):
        machine[at] = machine[at - 1] if at and rng.random() > 1 / stay else rng.integers(len(levels))
    y = np.array(levels)[machine] + rng.normal(0, noise, length)
    if step:
        y[step[0] :] += step[1]
    return y


def many(levels, stay, **options):
    return analyse_many([Trend(np.exp(fleet(seed, levels, stay, **options))) for seed in range(40)])


@pytest.mark.parametrize("levels", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("stay", [1, 4])
def test_the_levels_of_a_fleet_are_found(levels, stay):
    found = [modes(fleet(seed, levels, stay)) for seed in range(40)]
    assert sum(one is not None and len(one.levels) == len(levels) for one in found) >= 36
    assert all(np.allclose(one.levels, levels, atol=0.01) for one in found if one and len(one.levels) == len(levels))


def test_what_scatters_drifts_or_steps_for_good_has_no_modes():
    rng = np.random.default_rng(3)
    for _ in range(200):
        noise = rng.normal(0, 0.01, 100)
        assert modes(noise) is None
        assert modes(noise + np.linspace(0, 0.2, 100)) is None
        assert modes(noise + 0.1 * (np.arange(100) > 30) + 0.1 * (np.arange(100) > 60)) is None
        assert modes(rng.uniform(0, 1, 100)) is None


def test_outliers_that_stand_alone_are_no_mode():
    rng = np.random.default_rng(3)
    y = rng.normal(0, 0.01, (200, 100))
    for series in y:
        series[rng.integers(0, 100, 6)] += 0.2
    # Of six odd points among a hundred, two pairs may follow one another.
    assert sum(modes(series) is not None for series in y) <= 2


@pytest.mark.parametrize("levels", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("stay", [1, 4])
def test_a_fleet_is_named_and_little_of_its_switching_is_told(levels, stay):
    found = many(levels, stay)
    assert sum(one.noise.kind == "multimodal" for one in found) >= 36
    assert sum(len(one.changes) for one in found) <= 40
    # Two-mode search alone left two to four of each series standing where three or four levels take turns.
    assert sum(len(one.changes) <= 1 for one in found) >= 28


@pytest.mark.parametrize("levels", FLEETS.values(), ids=FLEETS)
def test_a_step_of_all_levels_is_told(levels):
    found = many(levels, 1, step=(80, 0.65))
    near = [[change for change in one.changes if abs(change.index - 80) <= 3] for one in found]
    assert sum(map(bool, near)) >= 36
    assert sum(len(one.changes) for one in found) <= 52


def test_what_was_told_before_the_switching_showed_is_withdrawn():
    rng = np.random.default_rng(1)
    y = 0.2 * np.repeat([0, 1, 0, 1, 0], [20, 15, 15, 15, 15]) + rng.normal(0, 0.005, 80)
    early, late = analyse(Trend(np.exp(y[:60]))), analyse(Trend(np.exp(y)))
    # It may as well have landed, been reverted and landed again.
    assert [change.index for change in early.changes] == [20, 35, 50]
    assert late.changes == ()
    assert "switches between" in late.revisions[-1].why
    assert (late.noise.kind, len(modes(y).levels)) == ("multimodal", 2)


def test_two_slowdowns_and_a_repair_of_both_are_no_switching():
    rng = np.random.default_rng(2)
    y = np.repeat([0, 0.1, 0.2, 0], 25) + rng.normal(0, 0.005, 100)
    assert [change.index for change in analyse(Trend(np.exp(y))).changes] == [25, 50, 75]


def test_what_returns_to_a_known_level_is_explained_and_a_new_level_is_not():
    y = fleet(4, FLEETS["three"], 3, length=90)
    known = np.append(y, np.full(4, FLEETS["three"][1]))
    assert explained(known, [], 90) == 0
    assert explained(np.append(y, np.full(4, 0.8)), [], 90) is None
    # After a step of all levels, the others are expected where they lay beside the first.
    moved = np.append(y, np.repeat([1.0, 1.15], 6))
    assert explained(moved, [90], 96) == 0
    assert explained(np.append(moved[:96], np.full(6, 1.33)), [90], 96) is None


def test_the_levels_of_a_fleet_after_a_step_are_told_once():
    """A fleet whose second commit after the step is another machine: two changes are reported before that shows."""
    machines = "cccccaaaaabbbbbbbbaaaaaaaaacccccbbbbbbbbbbbbbbbbbbccccccbbbaaabbbbaabaaaaabbbbbbccc"
    machines += "aaaaaaabbbcccaccbbbbbbccccccccccaaaaa"
    rng = np.random.default_rng(1)
    levels = np.log(
        [{"a": 1.0, "b": 1.15, "c": 1.4}[one] * (1.9 if at >= 90 else 1.0) for at, one in enumerate(machines)]
    )
    found = analyse(Trend(np.exp(levels + rng.normal(0, 0.0045, len(machines)))))
    [change] = found.changes
    assert (change.index, change.left) == (90, change.size)
    # Of each level with itself: a's and b's share of the commits is another before and after.
    assert change.low < np.log(1.9) < change.high
    assert change.size == pytest.approx(np.log(1.9), abs=0.004)
    assert found.noise.kind == "multimodal"
