"""Find the changes of one trend, of many trends, or of many series to which commits are added one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lockstep.detect.detector import TOGETHER, Detector, Floats, Ints
from lockstep.detect.findings import Analysis, Change
from lockstep.detect.series_state import SeriesState
from lockstep.detect.summary import changes_of, summarise
from lockstep.detect.trend import Better, Trend
from lockstep.processes.end_with_parent import pool


def analyse(trend: Trend) -> Analysis:
    """Find the changes and the noise of one series.

    The series is replayed: its commits are analysed in order, each without knowledge of later commits.
    """
    return analyse_many([trend])[0]


def analyse_many(trends: Sequence[Trend], *, processes: int = 1) -> list[Analysis]:
    """Find the changes and the noise of many series, much faster than one call of ``analyse`` for each.

    Args:
        trends: any number of series of any lengths.
        processes: the number of processes that share the work.
    """
    # Replay series of similar length together, because a replay takes as long as its longest series.
    order = sorted(range(len(trends)), key=lambda place: len(trends[place]))
    batches = [order[first : first + TOGETHER] for first in range(0, len(order), TOGETHER)]
    jobs = [[trends[place] for place in batch] for batch in batches]
    analysis_at: list[Analysis | None] = [None] * len(trends)
    if processes > 1 and len(jobs) > 1:
        with pool(processes) as workers:
            results = list(workers.map(_analyse_batch, jobs))
    else:
        results = [_analyse_batch(job) for job in jobs]
    for batch, analyses in zip(batches, results, strict=True):
        for place, analysis in zip(batch, analyses, strict=True):
            analysis_at[place] = analysis
    return [analysis for analysis in analysis_at if analysis is not None]


class Monitor:
    """Analyses many series commit by commit: for a new commit, it does not analyse earlier commits again.

    Args:
        trends: the series so far; each may be empty.
        states: what ``states`` of an earlier monitor returned after the first commits of each series; ``None`` for a
            series without. Only the points of later commits are analysed.
    """

    def __init__(self, trends: Sequence[Trend], states: Sequence[SeriesState | None] = ()) -> None:
        self.better: list[Better] = [trend.better for trend in trends]
        self.detector = Detector(np.array([trend.ratio for trend in trends], dtype=np.bool_))
        self.detector.load(trends, states)

    def __len__(self) -> int:
        return len(self.better)

    def extend(self, values: Floats, errors: Floats | None = None, rows: Ints | None = None) -> None:
        """Add the numbers of one commit to the series ``rows`` (all series if not given).

        Args:
            values: float64 [rows]; NaN where the commit has no number.
            errors: float64 [rows], standard errors as in ``Trend``; NaN where unknown.
            rows: int64 [rows], each series at most once.

        Raises:
            ValueError: a value is infinite, or it is zero or negative and all earlier numbers of its series are
                positive. Such a series must be analysed again from its first commit.
        """
        # A ``Trend`` validates its arrays.
        trend = Trend(values, errors)
        chosen = np.arange(len(self)) if rows is None else rows
        if bool(np.any(self.detector.ratio[chosen] & (trend.values <= 0))):
            raise ValueError("a number is zero or negative, and earlier numbers are positive: analyse the series again")
        unknown = np.full(len(trend), np.nan)
        self.detector.extend(trend.values, unknown if trend.errors is None else trend.errors, chosen)

    def states(self) -> list[SeriesState]:
        """Return what the monitor knows of each series besides its points, for a monitor that continues from there."""
        return [self.detector.state(row) for row in range(len(self))]

    def analyses(self, rows: Iterable[int] | None = None) -> list[Analysis]:
        """Return the analyses of the series ``rows`` (all series if not given)."""
        indices = list(range(len(self)) if rows is None else rows)
        analyses: list[Analysis] = []
        for first in range(0, len(indices), TOGETHER):
            part = indices[first : first + TOGETHER]
            analyses += summarise(self.detector, part, self.better)
        return analyses

    def changes(self) -> dict[int, tuple[Change, ...]]:
        """Return the changes by series, without series that have none. This is about twenty times as fast as
        ``analyses``.
        """
        return changes_of(self.detector, range(len(self)), self.better)


def _analyse_batch(trends: Sequence[Trend]) -> list[Analysis]:
    return Monitor(trends).analyses()
