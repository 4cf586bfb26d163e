"""Find the changes of one series or of many, or continue an analysis of series that have more points now."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.detect.detector import Detector
from lockstep.detect.findings import Analysis, Trend
from lockstep.detect.series_state import SeriesState
from lockstep.detect.summary import summarise
from lockstep.processes.end_with_parent import pool

#: Number of series that are analysed together, so that their hypotheses fit into the processor's cache.
_TOGETHER = 500

#: What was found in a series, and the state from which a later analysis continues.
Continued = tuple[Analysis, SeriesState]


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
    return [analysis for analysis, _ in continue_many(trends, [None] * len(trends), processes=processes)]


def continue_many(
    trends: Sequence[Trend], states: Sequence[SeriesState | None], *, processes: int = 1
) -> list[Continued]:
    """Return what ``analyse_many`` finds, but analyse only the points that are new, and return states too.

    Args:
        states: what this function returned after the first points of each series; ``None`` for a series without.
    """
    new = [len(trend) - (state.done if state else 0) for trend, state in zip(trends, states, strict=True)]
    # Replay series of similar length together, because a replay takes as long as its longest series.
    order = sorted(range(len(trends)), key=lambda place: (new[place], len(trends[place])))
    batches = [order[first : first + _TOGETHER] for first in range(0, len(order), _TOGETHER)]
    jobs = [([trends[place] for place in batch], [states[place] for place in batch]) for batch in batches]
    if processes > 1 and len(jobs) > 1:
        with pool(processes) as workers:
            results = list(workers.map(_continue_batch, *zip(*jobs, strict=True)))
    else:
        results = [_continue_batch(*job) for job in jobs]
    found = {
        place: one
        for batch, answers in zip(batches, results, strict=True)
        for place, one in zip(batch, answers, strict=True)
    }
    return [found[place] for place in range(len(trends))]


def _continue_batch(trends: Sequence[Trend], states: Sequence[SeriesState | None]) -> list[Continued]:
    detector = Detector(trends, states)
    analyses = summarise(detector)
    return [(analysis, detector.state(row)) for row, analysis in enumerate(analyses)]
