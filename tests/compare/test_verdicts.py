"""What two measurements differ by, and what that is called: one rule, in two scopes."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from compared import each
from trees import read

from lockstep.compare.difference import call, compare_rows
from lockstep.compare.read_rows import rows_at
from lockstep.compare.two_sides import Side, compare
from lockstep.compare.verdict import LOUDEST, errors_of, quantile, quantiles
from lockstep.history.reader import ASV_QUANTILE
from lockstep.suite.thresholds import Thresholds

FIRST, SECOND = "1" * 40, "2" * 40
COLUMNS = ["result", "params", "version", "stats_ci_99_a", "stats_ci_99_b"]


@pytest.mark.parametrize(
    ("worse", "error", "two_runs", "history"),
    [
        (0.03, 0.01, "slower", "slower"),
        (-0.03, 0.01, "faster", "faster"),
        (0.02, 0.01, "unsure", "unsure"),
        (0.002, 0.003, "same", "same"),
        (0.002, 0.006, "unsure", "unsure"),
        # Surely there and too small to matter, while the interval reaches beyond that.
        (0.009, 0.003, "unsure", "same"),
        (-0.009, 0.003, "unsure", "same"),
        # Equal, and nothing known of the noise.
        (0.0, math.nan, "unsure", "same"),
        (0.03, math.nan, "unsure", "unsure"),
    ],
)
def test_a_history_calls_two_more_kinds_of_change_the_same(worse, error, two_runs, history):
    columns = [np.array([number]) for number in (worse, error)]
    half = quantiles(np.array([0.99])) * columns[1]
    for verdict, alone in ((two_runs, True), (history, False)):
        assert [call(*columns, half, np.array([0.01]), alone)] == [LOUDEST.index(verdict)]
    if not math.isnan(error):
        assert half[0] == pytest.approx(quantile(0.99) * error)


@pytest.mark.parametrize(
    ("before", "after", "noise", "error"),
    [
        (0.003, 0.004, math.nan, 0.005),
        (0.003, 0.004, 0.001, 0.005),
        (0.003, 0.004, 0.01, math.sqrt(2) * 0.01),
        (math.nan, 0.004, 0.01, math.sqrt(2) * 0.01),
        (math.nan, 0.004, math.nan, math.nan),
        # Intervals of no width.
        (0.0, 0.0, math.nan, math.nan),
        (0.0, 0.0, 0.01, math.sqrt(2) * 0.01),
    ],
)
def test_the_larger_of_the_noise_within_and_between_runs_counts(before, after, noise, error):
    assert float(errors_of(before, after, noise)) == pytest.approx(error, nan_ok=True)
    arrays = [np.array([number]) for number in (before, after, noise)]
    assert errors_of(*arrays).tolist() == pytest.approx([error], nan_ok=True)


#: By name of the benchmark: unit, both numbers (``None`` failed), error of each, versions, noise from run to run, and
#: the verdicts of a history and of Compare.
CASES = {
    "slower": ("MB", 100, 105, 0.001, "11", math.nan, "slower", "slower"),
    "faster": ("MB", 100, 95, 0.001, "11", math.nan, "faster", "faster"),
    "rate": ("MB/s", 100, 105, 0.001, "11", math.nan, "faster", "faster"),
    "noisy": ("MB", 100, 105, 0.001, "11", 0.05, "unsure", "slower"),
    "equal": ("MB", 100, 100.1, 0.001, "11", math.nan, "same", "same"),
    "small": ("MB", 100, 100.9, 0.001, "11", math.nan, "same", "unsure"),
    "from_zero": ("MB", 0, 5, 0.001, "11", math.nan, "unsure", "unsure"),
    "zero": ("MB", 0, 0, 0.001, "11", math.nan, "same", "same"),
    "changed": ("MB", 100, 105, 0.001, "12", math.nan, "new", ""),
    "failing": ("MB", 100, None, 0.001, "11", math.nan, "failed", "failed"),
    "mended": ("MB", None, 100, 0.001, "11", math.nan, "new", "failed"),
    "no_width": ("MB", 100, 105, 0.0, "11", math.nan, "unsure", "unsure"),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Rows of both commits of a project with these benchmarks."""
    root = tmp_path_factory.mktemp("two")
    (root / "runner").mkdir()
    names = {f"suite.track_{name}": case for name, case in CASES.items()}
    units = {name: {"name": name, "type": "track", "unit": case[0], "param_names": []} for name, case in names.items()}
    (root / "benchmarks.json").write_text(json.dumps({**units, "version": 2}))
    for place, commit in enumerate((FIRST, SECOND)):

        def numbers(case, place=place):
            value, width = case[1 + place], math.exp(ASV_QUANTILE * case[3])
            ends = [[None], [None]] if value is None else [[value / width], [value * width]]
            return [[value], [], case[4][place], *ends]

        content = {"commit_hash": commit, "env_name": "env", "date": 1_790_000_000_000 + place, "version": 2}
        content |= {"params": {"machine": "runner"}, "python": "3.12", "requirements": {}, "durations": {}}
        content |= {"result_columns": COLUMNS, "results": {name: numbers(case) for name, case in names.items()}}
        (root / "runner" / f"{commit[:8]}-env.json").write_text(json.dumps(content))
    results = read(root)
    return SimpleNamespace(
        results=results, before=rows_at(results, "runner", FIRST), after=rows_at(results, "runner", SECOND)
    )


def test_a_verdict_needs_size_and_certainty(two):
    keys = two.after.keys
    noise = {key: CASES[key.suite.removeprefix("suite.track_")][5] for key in keys}
    places = np.array([two.before.find(key) for key in keys])
    found = compare_rows(two.before, places, two.after, Thresholds(), noise)
    verdicts = {key.suite.removeprefix("suite.track_"): one.verdict for key, one in zip(keys, each(found), strict=True)}
    assert verdicts == {name: case[6] for name, case in CASES.items()}
    at_once = compare_rows(two.before, np.full(len(keys), -1), two.after, Thresholds())
    assert {one.verdict for one in each(at_once)} == {"new", "failed"}


def test_two_runs_alone_are_called_the_same_by_the_whole_interval(two):
    found = compare(two.results, Side("runner", FIRST), Side("runner", SECOND), "speedup", Thresholds())
    verdicts = {pair.suite.removeprefix("suite.track_"): pair.verdict for pair in found}
    assert verdicts == {name: case[7] for name, case in CASES.items() if case[7]}
    assert found.other_version == 1
    why = {pair.suite.removeprefix("suite.track_"): pair.why for pair in found}
    assert (why["from_zero"], why["no_width"]) == ("its noise is unknown", "its noise is unknown")
    loud = [pair.verdict for pair in found]
    assert loud[:3] == ["failed", "failed", "slower"]
    assert loud == sorted(loud, key=["failed", "slower", "faster", "unsure", "same"].index)
