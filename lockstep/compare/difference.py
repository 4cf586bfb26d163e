"""Compare rows with earlier rows of the same series, for the overview, the commit page, Compare and the API.

Callers choose the rows. This module computes by how much each row became worse,
and the verdict. In every quantity, a positive change is worse. Where no direction is better, it is a larger number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.cause.attribution import GPUS_DIFFER
from lockstep.compare.row_table import Indices, RowTable
from lockstep.compare.verdict import LOUDEST, Times, errors_of, quantiles
from lockstep.history.model import STATES, Floats, SeriesKey
from lockstep.history.row_keys import PARTS
from lockstep.suite.thresholds import Thresholds

#: What is compared of two runs. "speedup": the time relative to the baseline of the same measurement, which is far more
#: certain. "latency": the time itself, or another project's value.
Quantity = Literal["speedup", "latency"]

#: Verdicts as codes in arrays: ``LOUDEST[code]`` is the verdict.
Verdicts = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Differences:
    """The differences of rows from earlier rows of their series, as columns.

    Attributes:
        rows: the later rows.
        before: the earlier rows.
        earlier: for each of ``rows``, the index of its row in ``before``; -1 if the series has no row there.
        quantity: the codes of the quantities that are compared, see ``PARTS``: the speedup (most certain, because it is
            paired), the latency or the value.
        worse: log of the factor by which the series became worse; NaN unless both rows have a number.
        error, half: the standard error of ``worse``, and half the width of its interval at the threshold's confidence;
            NaN if unknown.
        verdict: the codes of the verdicts, see ``LOUDEST`` and ``call``. Any change of an exact quantity is "slower" or
            "faster", which pages call worse and better.
        times: for speedups that changed, the changes of the variant's and the baseline's time, by the row's index.
        flipped: whether ``worse`` has the opposite sign of the change of the number, as for ``GB/s``. The speedup of a
            Lockstep suite stands for a time, so its change is that of the time.
    """

    rows: RowTable
    before: RowTable
    earlier: Indices
    quantity: NDArray[np.uint8]
    worse: Floats
    error: Floats
    half: Floats
    verdict: Verdicts
    times: Mapping[int, Times]
    flipped: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.worse)

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Both ends of the interval of the change of each number, as logs; NaN if unknown."""
        ends = self.of_number(self.worse - self.half), self.of_number(self.worse + self.half)
        return np.minimum(*ends), np.maximum(*ends)

    def of_number(self, worse: Floats) -> Floats:
        """Convert logs of factors by which the series became worse to those of the changes of the numbers."""
        return np.where(self.flipped, -worse, worse)

    def select(self, places: Indices) -> Differences:
        """Return the differences at these indices."""
        arrays: dict[str, Any] = {
            name: column[places] for name, column in vars(self).items() if isinstance(column, np.ndarray)
        }
        times = {at: self.times[place] for at, place in enumerate(places.tolist()) if place in self.times}
        return replace(self, rows=self.rows.select(places), times=times, **arrays)


def compare_rows(
    before: RowTable,
    earlier: Indices,
    after: RowTable,
    thresholds: Thresholds,
    noise: Mapping[SeriesKey, float] | None = None,
    unit_noise: Mapping[SeriesKey, float] | None = None,
    two_runs: Quantity | None = None,
) -> Differences:
    """Return the difference of each row from its earlier row.

    Args:
        earlier: for each row of ``after``, the index of its row in ``before``; -1 if the series has no row there.
        thresholds: how large a change must be to matter, and the confidence.
        noise: the run-to-run noise of each series (standard deviation of the logarithm); ``None`` if no noise is known.
            An interval within one run does not contain this noise.
        unit_noise: the run-to-run noise in the unit, of series with zero or negative numbers, whose verdict goes by the
            difference; ``None`` if no such noise is known.
        two_runs: the quantity, if two runs are compared without the history between them. Then no row is "new", a
            failure of either row is "failed", and a change is "same" only if its whole interval is too small to matter.
            ``None`` compares within a history: the speedup if both rows have one with an error, else the latency. Then
            a certain change that is too small to matter is also "same", and so are equal numbers without known noise.
    """
    scale = np.array([noise.get(key, math.nan) for key in after.keys]) if noise else math.nan
    quantity = _quantities(before, earlier, after, two_runs)
    old, old_error = _numbers(before, earlier, quantity)
    new, new_error = _numbers(after, np.arange(len(after)), quantity)
    matters, confidence = limits(after, thresholds)
    direction = np.where(quantity == _SPEEDUP, -1, after.directions(thresholds))
    better = direction < 0
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = np.log(new / old)
    worse = np.where((old > 0) & (new > 0), np.where(better, -grown, grown), np.nan)
    error = np.where(np.isnan(worse), np.nan, errors_of(old_error, new_error, scale))
    quantile = quantiles(confidence)
    half = quantile * error
    verdict = call(worse, error, half, matters, two_runs is not None)
    if unit_noise:
        _call_differences(
            verdict, new - old, np.fmax(np.abs(old), np.abs(new)), better, after, matters, quantile, unit_noise
        )
    # A copy gives the GPU the same work as the commit that was timed, and as each other copy of it.
    verdict[(old == new) & (_at(before.timed, earlier, 0) == after.timed)] = _SAME
    # A count of zero has no ratio to another count, but two equal counts are the same.
    verdict[(old == new) & np.isnan(worse)] = _SAME
    exact = after.exact
    for sign, changed in enumerate(_CHANGED):
        verdict[exact & (new != old) & ((new < old) == (better ^ bool(sign)))] = changed
    verdict[exact & (new == old)] = _SAME
    verdict[(direction == 0) & np.isin(verdict, _CHANGED)] = LOUDEST.index("changed")
    state = after.columns["state"]
    if two_runs:
        verdict[(state == _FAILED) | (_at(before.columns["state"], earlier) == _FAILED)] = LOUDEST.index("failed")
    else:
        version = after.columns["version"]
        fresh = (earlier < 0) | np.isnan(old) | (_at(before.columns["version"], earlier) != version)
        gpu, new_gpu = _at(before.columns["gpu"], earlier), after.columns["gpu"]
        moved_gpu = (gpu != new_gpu) & (gpu != 0) & (new_gpu != 0) & ~exact
        verdict[moved_gpu & np.isin(verdict, _CHANGED) & (np.abs(np.expm1(worse)) <= GPUS_DIFFER)] = _UNSURE
        missing = np.isnan(new)
        verdict[fresh] = LOUDEST.index("new")
        verdict[missing] = _UNSURE
        verdict[missing & (state == _FAILED)] = LOUDEST.index("failed")
        for column in (worse, error, half):
            column[fresh | missing] = np.nan
    times = {}
    for place in np.flatnonzero(np.isin(verdict, _CHANGED) & (quantity == _SPEEDUP)).tolist():
        moved = _times(before, int(earlier[place]), after, place, noise or {})
        if moved is not None:
            times[place] = moved
            if moved.baseline_moved(float(worse[place]), float(confidence[place])):
                verdict[place] = LOUDEST.index("baseline moved")
    flipped = better & after.foreign
    return Differences(after, before, earlier, quantity, worse, error, half, verdict, times, flipped)


def call(worse: Floats, error: Floats, half: Floats, matters: Floats, two_runs: bool) -> Verdicts:
    """Return the verdict on each change, as a code.

    A change is "slower" or "faster" if it is certain and matters, "same" if no part of its interval matters, and
    otherwise "unsure".

    Args:
        worse, error: see ``Differences``.
        half: half the width of each interval.
        matters: the smallest relative change that matters; 0.01 is 1 %.
        two_runs: whether two runs are compared, see ``compare_rows``.
    """
    least = np.log1p(matters)
    size = np.abs(worse)
    significant = size > half
    verdict = np.full(len(worse), _UNSURE, dtype=np.uint8)
    verdict[size + half < least] = _SAME
    verdict[significant & (size >= least)] = LOUDEST.index("faster")
    verdict[significant & (size >= least) & (worse > 0)] = LOUDEST.index("slower")
    if not two_runs:
        verdict[(verdict == _UNSURE) & (significant | (np.isnan(error) & (worse == 0)))] = _SAME
    return verdict


def _call_differences(
    verdict: Verdicts,
    difference: Floats,
    larger: Floats,
    better: NDArray[np.bool_],
    rows: RowTable,
    matters: Floats,
    quantile: Floats,
    noise: Mapping[SeriesKey, float],
) -> None:
    """Write the verdict on each row with a noise in its unit. A difference counts as a share of the larger number."""
    scale = np.array([noise.get(key, math.nan) for key in rows.keys])
    known = ~np.isnan(scale) & ~np.isnan(difference) & (larger > 0)
    share = np.where(better, -difference, difference)[known] / larger[known]
    error = math.sqrt(2) * scale[known] / larger[known]
    verdict[known] = call(share, error, quantile[known] * error, matters[known], True)


def loudest_first(differences: Differences) -> Indices:
    """Return the indices that sort rows: the most urgent verdict first, and within a verdict the largest change.

    Within a verdict, rows without numbers come last.
    """
    index, key = differences.rows.series_keys, differences.rows.columns["key"]
    size = np.where(np.isnan(differences.worse), np.inf, -np.abs(differences.worse))
    return np.lexsort((index.variant[key], index.shape[key], size, differences.verdict))


def geomean(worse: Floats) -> float:
    """Return the log of the geometric mean of the factors whose logs are known; NaN if none is known."""
    known = worse[~np.isnan(worse)]
    return math.fsum(known.tolist()) / len(known) if len(known) else math.nan


_LATENCY, _SPEEDUP, _VALUE = (PARTS.index(part) for part in ("latency", "speedup", "value"))
_SAME, _UNSURE = LOUDEST.index("same"), LOUDEST.index("unsure")
_CHANGED = [LOUDEST.index("slower"), LOUDEST.index("faster")]
_FAILED = STATES.index("failed")


def _quantities(before: RowTable, earlier: Indices, after: RowTable, two_runs: Quantity | None) -> NDArray[np.uint8]:
    """Return for each row the code of the quantity that is compared."""
    none = np.zeros(len(after), dtype=bool)
    valued = paired = none
    if "value" in after.columns or "value" in before.columns:
        valued = ~np.isnan(after.column("value")) | ~np.isnan(_at(before.column("value"), earlier))
    if two_runs == "speedup":
        paired = _at(before.columns["baseline"], earlier, "") != ""
    elif not two_runs and "speedup" in after.columns:
        paired = _paired(after) & ((earlier < 0) | _at(_paired(before), earlier, False))
    quantity = np.where(valued, _VALUE, np.where(paired, _SPEEDUP, _LATENCY))
    return quantity.astype(np.uint8)


def _paired(rows: RowTable) -> NDArray[np.bool_]:
    """Return a mask of the rows whose speedup is more certain than the time.

    A baseline is not among them, because its own speedup is always 1.
    """
    error = rows.column("speedup_error")
    paired: NDArray[np.bool_] = (rows.column("speedup") > 0) & ~np.isnan(error) & (error != 0)
    return paired & ~rows.is_baseline


def _numbers(rows: RowTable, places: Indices, quantity: NDArray[np.uint8]) -> tuple[Floats, Floats]:
    """Return each row's number in the quantity that is compared, and the standard error of the number's logarithm."""
    value, error = np.full(len(places), np.nan), np.full(len(places), np.nan)
    for code, name in enumerate(PARTS):
        uses_quantity = quantity == code
        if name in rows.columns and uses_quantity.any():
            value[uses_quantity] = _at(rows.columns[name], places[uses_quantity])
            error[uses_quantity] = _at(rows.columns[f"{name}_error"], places[uses_quantity])
    return value, error


def _at(column: NDArray[Any], places: Indices, missing: Any = math.nan) -> NDArray[Any]:
    """Return the values of a column at these indices, with ``missing`` for the index -1."""
    if not len(column):
        return np.full(len(places), missing)
    return np.where(places < 0, missing, column[places])


def limits(rows: RowTable, thresholds: Thresholds) -> tuple[Floats, Floats]:
    """Return, from the thresholds of each row, the smallest relative change that matters and the confidence."""
    if not thresholds.rules:
        default = thresholds.default
        return np.full(len(rows), default.min_effect), np.full(len(rows), default.confidence)
    row_thresholds = [thresholds.of(*rows.subject(place)) for place in range(len(rows))]
    return np.array([threshold.min_effect for threshold in row_thresholds]), np.array(
        [threshold.confidence for threshold in row_thresholds]
    )


def _times(
    before: RowTable, earlier: int, after: RowTable, index: int, noise: Mapping[SeriesKey, float]
) -> Times | None:
    """Return the changes of a row's time and of its baseline's time; ``None`` unless both are known."""
    old_baseline, new_baseline = before.baseline_of(earlier), after.baseline_of(index)
    if new_baseline >= 0 and after.at("commit", new_baseline) != after.at("commit", index):
        new_baseline = -1
    scale = noise.get(after.key_at(new_baseline), math.nan) if new_baseline >= 0 else math.nan
    kernel, baseline = (
        _time_changed(before, earlier, after, index),
        _time_changed(before, old_baseline, after, new_baseline, scale),
    )
    if kernel is None or baseline is None:
        return None
    return Times(kernel[0], *baseline)


def _time_changed(
    before: RowTable, earlier: int, after: RowTable, index: int, noise: float = math.nan
) -> tuple[float, float] | None:
    """Return the log of the factor by which a time grew, and its standard error.

    ``None`` unless both rows have a time of the same benchmark version.
    """
    if min(earlier, index) < 0 or before.at("version", earlier) != after.at("version", index):
        return None
    old, new = before.number("latency", earlier), after.number("latency", index)
    if old is None or new is None:
        return None
    error = errors_of(before.at("latency_error", earlier), after.at("latency_error", index), noise)
    return math.log(new / old), float(error)
