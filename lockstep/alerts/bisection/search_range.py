"""Give a bisection the commits to search: the range of an alert, and wider ranges if an end does not fit."""

from __future__ import annotations

from lockstep.alerts.bisection.bisect import End, SearchRange
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.model import Alert, FoundChange
from lockstep.alerts.text import remedy
from lockstep.history.snapshot import Results


class UnknownRange(ValueError):
    """The repository does not know the commits of a range. The message says why and what to do."""


class RangeWidener:
    """Widens the range of an alert for ``lockstep.alerts.bisection.bisect.bisect``.

    The range of an alert is the intersection of its series' ranges. Each of these ranges contains the culprit with 95 %
    probability, so the intersection may miss it. The wider range is that of the measured series. The history gives no
    reason to search farther out, so that is done only on request (``beyond``).

    Args:
        member: the alert's series that is measured.
        beyond: whether to widen the range beyond the series' own range, by 1, 2, 4 … measured commits.
    """

    def __init__(self, ranges: Ranges, results: Results, alert: Alert, member: FoundChange, beyond: bool) -> None:
        self._ranges = ranges
        self._alert = alert
        self._commits = [commit.hash for commit in results.commits(alert.machine)]
        self._place = {commit: at for at, commit in enumerate(self._commits)}
        self._own: dict[End, str] = {"good": member.before, "bad": member.after}
        self._beyond = beyond
        self._far = 1

    def first(self) -> SearchRange:
        """Return the range of the alert, with which a search begins.

        Raises:
            UnknownRange: the repository does not know the commits of the alert's range.
        """
        return self._span(self._alert.before, self._alert.after, self._alert.suspects)

    def __call__(self, span: SearchRange, end: End) -> SearchRange | None:
        """Return a range of commits whose given end lies farther out than that of ``span``.

        ``None`` if no range is wider, or if the repository lacks commits of the wider range.
        """
        commit = self._next(span.good if end == "good" else span.bad, end)
        try:
            if commit:
                return self._span(commit, span.bad) if end == "good" else self._span(span.good, commit)
        except UnknownRange:
            pass
        return None

    def _next(self, commit: str, end: End) -> str:
        own_commit = self._own[end]
        outwards = (own_commit, commit) if end == "good" else (commit, own_commit)
        if own_commit and not self._ranges.between(*outwards).unknown:
            return own_commit
        at = self._place.get(commit)
        if at is None or not self._beyond:
            return ""
        # The first and the last measured commit are the limits.
        farther = min(max(at + (-self._far if end == "good" else self._far), 0), len(self._commits) - 1)
        self._far *= 2
        return self._commits[farther] if farther != at else ""

    def _span(self, good: str, bad: str, suspects: tuple[str, ...] = ()) -> SearchRange:
        known = self._ranges.between(good, bad)
        if known.unknown:
            raise UnknownRange(
                f"the commits between {good[:12]} and {bad[:12]} are unknown, so none can be measured: "
                f"{remedy(known.unknown, good, bad)}"
            )
        suspected = {*suspects} & {*known.commits} or {*(known.touched or known.commits)}
        return SearchRange(good, bad, tuple(commit for commit in known.commits if commit in suspected), known.parents)
