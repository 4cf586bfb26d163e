"""Find the release of a package with which cases became slower or wrong: halve the range between two releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lockstep.gate.model import SeriesKey, Verdict
from lockstep.gate.report.report import Report

#: Compares two releases by some cases, or by all for ``()``.
Compare = Callable[[str, str, Sequence[SeriesKey]], Report]


@dataclass(frozen=True)
class FirstBad:
    """Cases that are slower or wrong from one release on.

    Attributes:
        before: the last release without the change; several releases may lie between the two if one cannot be judged.
        release: the first release that is known to have the change.
        verdicts: the verdicts on the cases between the two.
    """

    before: str
    release: str
    verdicts: tuple[Verdict, ...]


@dataclass
class ReleaseSearch:
    """Halves the range of some releases, oldest first. The release in the middle is compared with the oldest."""

    names: Sequence[str]
    compare: Compare
    say: Callable[[str], None]
    found: list[FirstBad] = field(default_factory=list)
    _known: dict[tuple[str, str], dict[SeriesKey, Verdict]] = field(default_factory=dict)

    def run(self) -> Report:
        """Search for every case that is slower or wrong in the newest release; return the report on both ends."""
        ends = self.compare(self.names[0], self.names[-1], ())
        verdicts = self._known[self.names[0], self.names[-1]] = {verdict.key: verdict for verdict in ends.cases}
        bad = {key: verdict for key, verdict in verdicts.items() if verdict.blocks}
        if bad:
            self._search(0, len(self.names) - 1, bad)
        return ends

    def _search(self, low: int, high: int, bad: dict[SeriesKey, Verdict]) -> None:
        """Search for the cases ``bad`` between a release without and one with their changes."""
        if not bad:
            return
        names = self.names
        middle = (low + high) // 2
        judged: dict[SeriesKey, bool] = {}
        if middle > low:
            verdicts = self._verdicts(names[0], names[middle], bad)
            judged = {key: _is_bad(verdicts[key], end) for key, end in bad.items() if _tells(verdicts.get(key))}
            changed = [key for key in bad if judged.get(key)]
            self.say(f"{names[middle]}: {len(changed)} of {len(bad)} cases as in {names[-1]}")
            self._search(low, middle, {key: bad[key] for key in changed})
            self._search(middle, high, {key: end for key, end in bad.items() if judged.get(key) is False})
        rest = {key: end for key, end in bad.items() if key not in judged}
        if rest:
            between = self._verdicts(names[low], names[high], rest)
            self.found.append(FirstBad(names[low], names[high], tuple(between[key] for key in rest if key in between)))

    def _verdicts(self, low: str, high: str, keys: Iterable[SeriesKey]) -> dict[SeriesKey, Verdict]:
        """Compare two releases by some cases, if they were not compared before."""
        known = self._known.setdefault((low, high), {})
        if missing := [key for key in keys if key not in known]:
            known |= {verdict.key: verdict for verdict in self.compare(low, high, missing).cases}
        return known


def _tells(verdict: Verdict | None) -> bool:
    return verdict is not None and (verdict.change is not None or verdict.outcome in ("same", "failed"))


def _is_bad(verdict: Verdict, end: Verdict) -> bool:
    """Return whether a release has the change that ``end``, the verdict on the newest release, shows."""
    if "failed" in (verdict.outcome, end.outcome):
        return verdict.outcome == end.outcome
    return _log(verdict) > _log(end) / 2


def _log(verdict: Verdict) -> float:
    return math.log1p(verdict.change.value) if verdict.change else 0.0
