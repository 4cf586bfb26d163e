"""Findings of an analysis for the pages, one file a machine.

A page reads the findings of the machine that it shows, and of no other. The behaviour of a series stays in the
detector's arrays until a page asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from lockstep.alerts import detector_state
from lockstep.alerts.analysis_cache import write_whole
from lockstep.alerts.as_json import from_json, to_json
from lockstep.alerts.attribution import Kind
from lockstep.alerts.commit_ranges import Unknown
from lockstep.alerts.followed_series import name_in
from lockstep.alerts.model import Alert, Suppressed
from lockstep.alerts.steps import SeriesName
from lockstep.detect import Analysis

#: Noise of a series, the smallest change that it can show, and its levels.
Behaviour = Analysis


@dataclass(frozen=True, slots=True)
class Finding:
    """A change of a series.

    Attributes:
        series: name.
        size, low, high: natural log of the factor by which it became worse, and its interval.
        last: position of the commit from which on the change is certainly there.
        commit: the first commit measured with it.
        good, end: the last commit without it, and the first that certainly has it.
        suspects: number of possible culprits; of the measured ones if the others are unknown.
        unknown: why the commits between the two are unknown; "" if they are known.
        kind, sentence: its cause.
        suppressed: why it is not reported; "" if it is.
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
        """Whether ``end`` is known to be the culprit."""
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
        state: of the machine's results, see ``Results.state``.

    Attributes:
        found: every change, reported or suppressed, in the order of the series.
        alerts: slowdowns and freshness alerts that are neither undone, old nor waived.
        noise: run-to-run noise of each followed series (standard deviation of the logarithm); NaN if unknown.

    Raises:
        OSError, ValueError: a file is missing, damaged, or of other results.
    """

    def __init__(self, changes: Path, detector: Path, state: str) -> None:
        self._detector, self._state = detector, state
        self._analyses: dict[SeriesName, Behaviour] = {}
        content = json.loads(changes.read_bytes())
        try:
            names = [SeriesName(*name) for name in content["series"]]
            self.found = tuple(Finding(names[at], *rest) for at, *rest in content["found"])
            self.alerts = tuple(from_json(alert) for alert in content["alerts"])
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{changes} is damaged: {error}") from error
        # A series with several benchmark versions has several entries, the newest last.
        noise = {name_in(row): (row, scale) for row, scale in detector_state.noise_scales(detector, state).items()}
        self._rows = {name: row for name, (row, _) in noise.items()}
        self.noise: Mapping[SeriesName, float] = {name: scale for name, (_, scale) in noise.items()}

    def behaviour(self, name: SeriesName) -> Behaviour | None:
        """Return the behaviour under the newest benchmark version; ``None`` if the series is not followed."""
        return self.behaviours([name]).get(name)

    def behaviours(self, names: Sequence[SeriesName]) -> dict[SeriesName, Behaviour]:
        """Return the behaviour of several series, by name; series for which ``behaviour`` is ``None`` are left out."""
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
    content = json.dumps({"series": [astuple(name) for name in places], "found": rows, "alerts": listed})
    write_whole(path, lambda out: out.write(content.encode("utf-8", "surrogatepass")))


_CHANGE = [field.name for field in fields(Finding)][1:]
