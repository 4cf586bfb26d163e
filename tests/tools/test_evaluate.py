"""The arithmetic of the scores, its rivals, and the verb."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trees import recorded

from lockstep.detect import Trend
from tools.evaluate.board import between, replay
from tools.evaluate.clear_steps import clear_steps, read_tree, recorded_sample
from tools.evaluate.plain_shapes import plain_shapes
from tools.evaluate.rivals import RIVALS, Rival, oracle
from tools.evaluate.samples import Sample, on_scale, planted, standard
from tools.evaluate.scoring import SCORES, Alarm, Told, judge, total

ROOT = Path(__file__).parents[2]


def told(*places: int) -> list[Told]:
    return [Told(place) for place in places]


def planned(length, steps, sizes=(), slacks=()):
    return Sample("x", Trend(np.ones(length)), tuple(steps), tuple(sizes or [0.1] * len(steps)), slacks=tuple(slacks))


def score(outcome, *names):
    return tuple(SCORES[name](outcome) for name in names)


class TestScoring:
    def test_in_place_within_two(self):
        outcome = judge(planned(100, [40, 70]), told(42, 73), None)
        assert (outcome.found, outcome.near, outcome.claimed, outcome.delays) == (1, 0, 2, ())

    def test_one_change_explains_one_step(self):
        assert judge(planned(100, [40, 42]), told(41), None).found == 1

    @pytest.mark.parametrize(
        ("changes", "found", "near", "signed", "sized", "held"),
        [
            ([Told(20, 0.5, 0.4, 0.6), Told(40, -0.5, -0.6, -0.4)], 1, 1, 1, 1, 1),
            ([], 0, 0, 0, 0, None),
            ([Told(22, 0.5, 0.4, 0.6), Told(42, -0.5, -0.6, -0.4)], 1, 0, 1, 1, 1),
            ([Told(23, 0.5, 0.4, 0.6), Told(43, -0.5, -0.6, -0.4)], 0, 0, 0, 0, None),
            ([Told(20, -0.5, -0.6, -0.4), Told(40, -0.5, -0.6, -0.4)], 1, 1, 0.5, 0.5, 0.5),
            ([Told(20, 0.4, 0.3, 0.45), Told(40, -0.46, -0.49, -0.4)], 1, 1, 1, 0.5, 0),
            ([Told(20, 0.5), Told(40, -0.5)], 1, 1, 1, 1, None),
        ],
        ids=["perfect", "silent", "two late", "three late", "wrong sign", "wrong sizes", "no intervals"],
    )
    def test_sizes(self, changes, found, near, signed, sized, held):
        outcome = judge(planned(100, [20, 40], [0.5, -0.5]), changes, None)
        assert score(outcome, "± 2", "± 1", "sign", "size", "interval") == (found, near, signed, sized, held)

    def test_alarms(self):
        alarms = [Alarm(39, 38), Alarm(41, 43), Alarm(45, 50), Alarm(75, 80)]
        outcome = judge(planned(100, [40, 70]), [], alarms)
        # 38: before the step; 50: the second about the step at 40.
        assert (outcome.false, outcome.delays) == (2, (3, 10))

    def test_totals(self):
        sample = planned(500, [40])
        both = total([judge(sample, told(40), [Alarm(40, 42)]), judge(sample, told(10), [Alarm(10, 12)])])
        assert score(both, "± 2", "precision", "F1") == (0.5, 0.5, 0.5)
        assert score(both, "false /1000", "delay", "changes /1000") == (1.0, np.inf, 2.0)

    def test_nothing_to_divide_by(self):
        outcome = judge(planned(100, []), told(3), None)
        assert score(outcome, "± 2", "precision", "false /1000", "changes /1000") == (None, None, None, 10.0)


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_rivals_find_a_clear_step_and_nothing_else(rival):
    values = np.exp(np.random.default_rng(1).normal(0, 0.01, 80))
    assert rival.detect(values) == []
    values[40:] *= 1.1
    assert [place for place in rival.detect(values) if abs(place - 40) <= 1] != []
    assert all(rival.detect(values[:length]) == [] for length in range(2, 8))


def test_a_replay_rings_for_what_vanishes_later():
    y = np.zeros(30)
    y[10] = 0.1
    last = Rival("last", lambda part: [part.size - 1] if part[-1] > 0.05 else [])
    assert replay(last, y) == [Alarm(10, 10)]


def test_the_oracle_places_a_clear_step():
    generator = np.random.default_rng(2)
    noise = generator.normal(0, 0.01, 100)
    sample = planted(generator, "x", noise, (33,), (0.1,), lambda residuals: -((residuals / 0.01) ** 2))
    assert oracle(sample) == 33
    assert oracle(Sample("x", Trend(np.ones(5)), (), (), np.log)) is None


def test_plain_shapes_hold_their_steps():
    generator = np.random.default_rng(5)
    for sample in plain_shapes(generator, 2):
        y = on_scale(sample.trend.values)
        edges = [0, *sample.steps, y.size]
        assert len(sample.steps) == len(sample.sizes)
        for before, step, after, size in zip(edges, edges[1:], edges[2:], sample.sizes, strict=False):
            assert before + 2 <= step <= after - 2
            if not any(word in sample.kind for word in ("modes", "machines", "yearly", "dip", "bursts", "2 … 5")):
                move = np.median(y[step : step + 12][: after - step]) - np.median(y[max(before, step - 12) : step])
                assert move == pytest.approx(size, abs=0.05 if sample.trend.ratio else 1.5), sample.kind


def test_sizes_between_places():
    def sizes(values, places):
        return [(told.index, told.size) for told in between(values, places)]

    assert sizes(np.array([0.0, 0, 0, 3, 3, 2, 2]), [3, 5]) == [(3, 3.0), (5, -1.0)]
    assert sizes(np.exp([1.0, 1, 3, 3]), [2]) == [(2, pytest.approx(2.0))]
    assert between(np.ones(4), []) == []


def test_samples_are_what_they_say():
    generator = np.random.default_rng(3)
    for sample in standard(generator, 2):
        assert len(sample.steps) == len(sample.sizes)
        y = np.log(sample.trend.values)
        for step, size in zip(sample.steps, sample.sizes, strict=True):
            after, before = y[step : step + 20], y[max(0, step - 20) : step]
            assert np.nanmedian(after) - np.nanmedian(before) == pytest.approx(size, abs=0.025)


def clear_sample() -> Sample:
    """Return a series with clear steps of 50 % at point 8 and of 33 % back at point 16."""
    values = 10 + 0.1 * np.arange(24) % 0.3
    values[8:16] += 5
    return recorded_sample("tree", Trend(values))


class TestClearSteps:
    def test_five_points_a_side_and_a_gap_of_two_ranges(self):
        level = np.repeat([10.0, 12.0], 5)
        assert clear_steps(level) == [5]
        assert clear_steps(level[1:]) == clear_steps(level[:-1]) == []
        noisy = level + np.tile([0, 0.66, 0, 0.66, 0], 2)
        assert clear_steps(noisy) == [5]
        assert clear_steps(noisy + np.tile([0, 0.02, 0, 0.02, 0], 2)) == []
        assert clear_steps(np.repeat([100.0, 101.9], 5)) == []
        assert clear_steps(np.repeat([100.0, 98.0], 5)) == [5]

    def test_neighbouring_splits_are_one_step(self):
        values = np.repeat([10.0, 20.0], 8) + np.tile([0, 0.1], 8)
        values[8] = 17.5
        assert clear_steps(values) == [8]
        assert clear_steps(np.repeat([10.0, 20.0, 10.0], 8)) == [8, 16]

    def test_zeros_and_negatives(self):
        assert clear_steps(np.repeat([0.0, 5.0, 0.0, -100.0, -120.0], 5)) == [5, 10, 15, 20]
        assert recorded_sample("tree", Trend(np.repeat([0.0, -5.0], 5))).sizes == (-5.0,)

    def test_a_size_lies_between_the_nearest_and_the_farthest_points(self):
        sample = recorded_sample("tree", Trend(np.exp([0.0, 0.1, 0, 0.1, 0, 1.0, 1.2, 1, 1, 1])))
        assert (sample.steps, sample.sizes, sample.slacks) == ((5,), pytest.approx((1.05,)), pytest.approx((0.15,)))

    @pytest.mark.parametrize(
        ("shift", "scale", "near", "signed", "held"),
        [(0, 1.0, 1, 1, 1), (1, 1.0, 1, 1, 1), (2, 1.0, 0, 1, 1), (3, 1.0, 0, 0, None), (0, -1.0, 1, 0, 0)],
    )
    def test_a_perfect_detector_and_worse_ones(self, shift, scale, near, signed, held):
        sample = clear_sample()
        assert sample.steps == (8, 16)
        sizes = [scale * size for size in sample.sizes]
        changes = [Told(step + shift, size, size, size) for step, size in zip(sample.steps, sizes, strict=True)]
        assert score(judge(sample, changes, None), "± 1", "sign", "interval") == (near, signed, held)

    def test_a_results_folder(self, tmp_path):
        samples = list(read_tree(recorded(tmp_path / "kernels", "h100-unlocked"), tmp_path / "cache"))
        assert len(samples) > 20
        assert {sample.kind for sample in samples} == {"kernels"}
        for sample in samples:
            assert sample.steps == tuple(clear_steps(sample.trend.values))


def scores(*options: str) -> str:
    words = ("--processes", "1", "--series", "4", "--seeds", "201", *options)
    command = [sys.executable, "-m", "tools", "evaluate", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_verb():
    [ours] = [line for line in scores("--alone").splitlines() if line.startswith("all but 0.5 %")]
    recall, *_, precision, f1 = map(float, ours.split("lockstep")[1].replace("│", " ").split()[:7])
    assert min(precision, recall, f1) > 0.7


def test_the_verb_scores_shapes():
    lines = scores("--shapes", "--alone").splitlines()
    [ours] = [line for line in lines if line.startswith("1 of 20 … 200 %, 12 apart")]
    assert ours.split("lockstep")[1].replace("│", " ").split()[:2] == ["1.00", "1.00"]


@pytest.mark.parametrize("option", [("--series", "0"), ("--seeds", "-1"), ("--trees", "nowhere")])
def test_a_wrong_option_is_named(option):
    with pytest.raises(subprocess.CalledProcessError) as failed:
        scores(*option)
    assert failed.value.returncode == 4
    assert option[0] in failed.value.stdout + failed.value.stderr
