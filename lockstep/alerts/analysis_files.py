"""The findings of an analysis for the pages, one file per machine.

A page reads only the findings of the machine that it shows. The behaviour of a series stays in the detector's arrays
until a page asks for it.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from lockstep.alerts import detector_state
from lockstep.alerts.analysis_cache import write_whole
from lockstep.alerts.as_json import from_json, to_json
from lockstep.alerts.attribution import Kind
from lockstep.alerts.commit_ranges import Unknown
from lockstep.alerts.followed_series import name_in
from lockstep.alerts.model import Alert, Suppressed
from lockstep.alerts.steps import SeriesName
from lockstep.detect import Analysis

#: The noise of a series, the smallest change that it can show, and its levels.
Behaviour = Analysis


@dataclass(frozen=True, slots=True)
class Finding:
    """A change of a series.

    Attributes:
        series: the name of the series.
        size: natural log of the factor by which the series became worse.
        low, high: interval of ``size``.
        last: position of the first commit that certainly has the change.
        commit: the first commit measured with the change.
        good: the last commit without the change.
        end: the first commit that certainly has the change.
        suspects: number of possible culprits. If ``unknown`` is set, only measured commits are counted.
        unknown: why the commits between ``good`` and ``end`` are unknown; "" if they are known.
        kind: the kind of the cause.
        sentence: a sentence that states the cause.
        suppressed: why the change is not reported; "" if the change is reported.
        unsettled, old, new: see ``lockstep.alerts.steps.Step``.
    """

    series: SeriesName
    size: float
    low: float
    high: float
    last: int
    commit: str
    good: str
    end: str
    suspects: int
    unknown: Unknown
    kind: Kind
    sentence: str
    suppressed: Suppressed = ""
    unsettled: bool = False
    old: float | None = None
    new: float | None = None

    @property
    def exact(self) -> bool:
        """Whether the change is known to come from commit ``end``."""
        return self.suspects == 1 and not self.unknown

    @property
    def range(self) -> str:
        """``267e5d01..177708fb, one of 48 commits``, or a single commit if the culprit is known."""
        if self.exact:
            return self.end[:8]
        return f"{self.good[:8]}..{self.end[:8]}{'' if self.unknown else f', one of {self.suspects} commits'}"


class MachineFindings:
    """The findings of one machine, read from files. The behaviour of a series is computed on request.

    Args:
        changes, detector: the files, see ``lockstep.alerts.analysis_cache.AnalysisCache``.
        state: the state of the machine's results, see ``Results.state``.

    Attributes:
        changed: the series that have a change.
        noise: run-to-run noise of each followed series (standard deviation of the logarithm); NaN if unknown.

    Raises:
        OSError, ValueError: a file is missing, damaged, or belongs to other results.
    """

    def __init__(self, changes: Path, detector: Path, state: str) -> None:
        self._detector, self._state = detector, state
        self._analyses: dict[SeriesName, Behaviour] = {}
        # Mapped, so that the alerts take no memory until a page asks for them. A mapping survives a deletion of the
        # file.
        with changes.open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._end = max(self._text.find(b"\n"), 0)
        content = json.loads(self._text[: self._end])
        # The content was copied. Without this call, the mapped pages would count as this process's memory.
        self._text.madvise(mmap.MADV_DONTNEED)
        try:
            if content["alerts"] != len(self._text) - self._end or any(len(row) != _WIDTH for row in content["found"]):
                raise ValueError(f"{changes} is damaged: its lengths differ")
            self._found: list[list[Any]] = content["found"]
            self._names = [SeriesName(*name) for name in content["series"]]
            self._changes: dict[SeriesName, list[list[Any]]] = {name: [] for name in self._names}
            for row in self._found:
                self._changes[self._names[row[0]]].append(row)
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{changes} is damaged: {error}") from error
        self.changed: Collection[SeriesName] = self._changes.keys()
        # A series with several benchmark versions has several entries, the newest last.
        noise = {name_in(row): (row, scale) for row, scale in detector_state.noise_scales(detector, state).items()}
        self._rows = {name: row for name, (row, _) in noise.items()}
        self.noise: Mapping[SeriesName, float] = {name: scale for name, (_, scale) in noise.items()}

    @cached_property
    def found(self) -> tuple[Finding, ...]:
        """Every change, reported or suppressed, in the order of the series."""
        return tuple(Finding(self._names[at], *rest) for at, *rest in self._found)

    @cached_property
    def alerts(self) -> tuple[Alert, ...]:
        """Slowdowns and freshness alerts that are neither undone, old nor waived."""
        return tuple(from_json(alert) for alert in json.loads(self._text[self._end :]))

    def reported(self, name: SeriesName, after: int = -1) -> list[Finding]:
        """Return the reported changes of a series whose ``last`` lies after a commit, oldest first.

        Args:
            name: the name of the series.
            after: the position of the commit.
        """
        rows = [row for row in self._changes.get(name, ()) if row[_LAST] > after and not row[_SUPPRESSED]]
        return [Finding(name, *rest) for _, *rest in sorted(rows, key=itemgetter(_LAST))]

    def behaviour(self, name: SeriesName) -> Behaviour | None:
        """Return the behaviour under the newest benchmark version; ``None`` if the series is not followed."""
        return self.behaviours([name]).get(name)

    def behaviours(self, names: Sequence[SeriesName]) -> dict[SeriesName, Behaviour]:
        """Return the behaviour of several series by name. Series without a behaviour are left out."""
        missing = [name for name in names if name in self._rows and name not in self._analyses]
        if missing:
            try:
                analyses = detector_state.analyses(self._detector, self._state, [self._rows[name] for name in missing])
                self._analyses |= dict(zip(missing, analyses, strict=True))
            except (ValueError, KeyError):
                pass
        return {name: self._analyses[name] for name in names if name in self._analyses}


def write_changes(path: Path, found: Iterable[Finding], alerts: Iterable[Alert]) -> None:
    """Write the changes of a machine, and its alerts that need action."""
    places: dict[SeriesName, int] = {}
    rows = [
        [places.setdefault(change.series, len(places)), *(getattr(change, name) for name in _CHANGE)]
        for change in found
    ]
    listed = [
        to_json(alert) for alert in alerts if alert.topic != "faster" and not (alert.gone or alert.old or alert.waiver)
    ]
    # The alerts are a line of their own, because few pages read them. The first line states the length of this line.
    alerts_line = b"\n" + json.dumps(listed).encode()
    content = {"series": [astuple(name) for name in places], "found": rows, "alerts": len(alerts_line)}
    write_whole(path, lambda out: out.write(json.dumps(content).encode() + alerts_line))


_FIELDS = [field.name for field in fields(Finding)]
_CHANGE = _FIELDS[1:]
#: Length of a change in the file, and the index of two of its fields.
_WIDTH, _LAST, _SUPPRESSED = len(_FIELDS), _FIELDS.index("last"), _FIELDS.index("suppressed")
