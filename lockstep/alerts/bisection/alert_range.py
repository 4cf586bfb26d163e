"""Give a bisection the commits to search."""

from __future__ import annotations

from lockstep.alerts.bisection.bisect import SearchRange
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.model import Alert, FoundChange
from lockstep.alerts.text import remedy


class UnknownRange(ValueError):
    """The repository does not know the commits of a range. The message says why and what to do."""


def search_range(ranges: Ranges, alert: Alert, member: FoundChange) -> SearchRange:
    """Return the commits among which a bisection of an alert's series searches.

    The range is that of the series. That of the alert is the intersection with the ranges of other series, each of
    which holds the culprit with 95 % probability, so it may miss the culprit.

    Raises:
        UnknownRange: the repository does not know the commits of the range.
    """
    good, bad = member.before or alert.before, member.after or alert.after
    known = ranges.between(good, bad)
    if known.unknown:
        raise UnknownRange(
            f"the commits between {good[:12]} and {bad[:12]} are unknown, so none can be measured: "
            f"{remedy(known.unknown, good, bad)}"
        )
    return SearchRange(good, bad, known.touched or known.commits, known.parents)
