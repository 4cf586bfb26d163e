"""Read recorded series, and find the steps in them that a person cannot miss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lockstep.alerts.analysis.followed_series import followed
from lockstep.alerts.analysis.machine_results import read_machine
from lockstep.detect import Trend
from lockstep.history.store import Store
from tools.evaluate.samples import Floats, Sample, on_scale

#: Number of points on each side of a clear step.
SIDE = 5
#: Least gap of a clear step, in ranges of the side that scatters more, and relative to the level before it.
_RANGES, _SHARE = 2.0, 0.02


def clear_steps(values: Floats) -> list[int]:
    """Return the indices of the steps that a person cannot miss, ascending.

    Before and after a clear step lie ``SIDE`` points each. The gap between the nearest points of both sides is at least
    twice the range of the side that scatters more, and at least 2 % of the level before. Of neighbouring splits that
    all qualify, the one with the largest gap in units of the range is the step.
    """
    if values.size < 2 * SIDE:
        return []
    windows = sliding_window_view(values, SIDE)
    top, bottom, level = windows.max(axis=1), windows.min(axis=1), np.median(windows, axis=1)
    gap = np.maximum(bottom[SIDE:] - top[:-SIDE], bottom[:-SIDE] - top[SIDE:])
    spread = np.maximum((top - bottom)[SIDE:], (top - bottom)[:-SIDE])
    splits = np.flatnonzero((gap >= _RANGES * spread) & (gap >= _SHARE * np.abs(level[:-SIDE])) & (gap > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        clarity = gap / spread
    runs = np.split(splits, np.flatnonzero(np.diff(splits) >= SIDE) + 1)
    return [int(run[clarity[run].argmax()]) + SIDE for run in runs if run.size]


def recorded_sample(kind: str, trend: Trend) -> Sample:
    """Return a recorded series with its clear steps as the true ones.

    The size of a step lies between the distance of the nearest points of both sides and that of the farthest.
    """
    steps, y = clear_steps(trend.values), on_scale(trend.values)
    sizes, slacks = [], []
    for step in steps:
        before, after = y[step - SIDE : step], y[step : step + SIDE]
        sizes.append(float(after.max() + after.min() - before.max() - before.min()) / 2)
        slacks.append(float(np.ptp(before) + np.ptp(after)) / 2)
    return Sample(kind, trend, tuple(steps), tuple(sizes), slacks=tuple(slacks))


def read_tree(results: Path, cache: Path) -> Iterator[Sample]:
    """Yield each noisy series of a results folder that the detector follows, with its clear steps.

    Args:
        results: asv's results folder.
        cache: folder for the store's cache, outside ``results``.
    """
    snapshot = Store.open(results, cache=cache).current()
    kind = next(part for part in reversed(results.absolute().parts) if part not in ("results", ".asv"))
    for machine in dict.fromkeys(series.machine for series in snapshot.series()):
        for entry in followed(read_machine(snapshot, machine)):
            if not entry.exact:
                yield recorded_sample(kind, entry.values)
