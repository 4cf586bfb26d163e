"""The detector's two entry points."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.changes.findings import Analysis
from dashboard.changes.settings import Settings
from dashboard.changes.trend import Trend


def analyse(trend: Trend, settings: Settings = Settings()) -> Analysis:
    """What a replay of the series, commit by commit, has reported up to its last point."""
    return analyse_many([trend], settings)[0]


def analyse_many(trends: Sequence[Trend], settings: Settings = Settings(), *, processes: int = 1) -> list[Analysis]:
    """``analyse`` for many series at once, in the order given; far faster than one after another.

    Args:
        trends: any number of series of any lengths.
        settings: the same for all.
        processes: how many processes share the work.
    """
    raise NotImplementedError
