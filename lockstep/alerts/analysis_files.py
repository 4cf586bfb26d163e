"""What pages show of an analysis, in files that they read by machine.

A page holds what was found on the machine that it shows, and nothing of the others; how a series behaves is left in the
detector's arrays until it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from lockstep.alerts import detector_state as memory
from lockstep.alerts.analysis_cache import write_whole
from lockstep.alerts.as_json import from_json, to_json
from lockstep.alerts.attribution import Kind
from lockstep.alerts.commit_ranges import Unknown
from lockstep.alerts.followed_series import name_in
from lockstep.alerts.model import Alert
from lockstep.alerts.steps import SeriesName
from lockstep.detect import Analysis

Suppressed = Literal["", "small", "unsure", "noise"]

#: How a series scatters, what it could show, and its levels.
Behaviour = Analysis


@dataclass(frozen=True, slots=True)
class Finding:
    """A change of a series.

    Attributes:
        series: which.
        size, low, high: natural log of the factor by which it became worse, and its interval.
        last: position of the commit after which it surely is there.
        commit: the first one measured with it.
        good, end: the commits between which it came, the first without it and the last with it.
        suspects: how many commits it may come from; if that is not known, how many of them were measured.
        unknown: why the commits between the two are not known; "" they are.
        kind, sentence: what it is put down to.
        quiet: why it is not told, see ``lockstep.alerts.analysis.Found``; "" it is.
        unsettled: the points after it agree on no level, see ``lockstep.alerts.steps.Step``.
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

    @property
    def exact(self) -> bool:
        """Whether it came with the commit ``end`` and no other."""
        return self.suspects == 1 and not self.unknown

    @property
    def range(self) -> str:
        """``267e5d01..177708fb, one of 48 commits``; the one commit if it can be no other."""
        if self.exact:
            return self.end[:8]
        return f"{self.good[:8]}..{self.end[:8]}{'' if self.unknown else f', one of {self.suspects} commits'}"


class MachineFindings:
    """What is found on one machine, as files have it; how a series behaves is worked out when it is asked for.

    Args:
        changes, detector: the files, see ``lockstep.alerts.analysis_cache.AnalysisCache``.
        state: of the machine's results, see ``Results.state``.

    Attributes:
        found: every change, told or not, in the order of the series.
        alerts: of what became slower or is not measured any more, and is neither undone, old nor excused.
        noise: run-to-run noise of each followed series (standard deviation of the logarithm); NaN unknown.

    Raises:
        OSError, ValueError: a file is gone, of other results, or damaged.
    """

    def __init__(self, changes: Path, detector: Path, state: str) -> None:
        self._detector, self._state = detector, state
        self._said: dict[SeriesName, Behaviour] = {}
        content = json.loads(changes.read_bytes())
        try:
            names = [SeriesName(*name) for name in content["series"]]
            self.found = tuple(Finding(names[at], *rest) for at, *rest in content["found"])
            self.alerts = tuple(from_json(one) for one in content["alerts"])
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{changes} is damaged: {error}") from error
        # A series whose ruler changed stands there several times, the newest last.
        scales = {name_in(row): (row, scale) for row, scale in memory.scales(detector, state).items()}
        self._rows = {name: row for name, (row, _) in scales.items()}
        self.noise: Mapping[SeriesName, float] = {name: scale for name, (_, scale) in scales.items()}

    def behaviour(self, name: SeriesName) -> Behaviour | None:
        """How a series behaves under its newest ruler; ``None`` if it is not followed, or is being analysed anew."""
        return self.behaviours([name]).get(name)

    def behaviours(self, names: Sequence[SeriesName]) -> dict[SeriesName, Behaviour]:
        """How several series behave, by name; without those that ``behaviour`` does not know."""
        missing = [name for name in names if name in self._rows and name not in self._said]
        if missing:
            try:
                said = memory.said(self._detector, self._state, [self._rows[name] for name in missing])
                self._said |= dict(zip(missing, said, strict=True))
            except (ValueError, KeyError):
                pass
        return {name: self._said[name] for name in names if name in self._said}


def write_changes(path: Path, found: Iterable[Finding], alerts: Iterable[Alert]) -> None:
    """Write the changes of a machine, and its alerts that somebody has to look at."""
    places: dict[SeriesName, int] = {}
    rows = [[places.setdefault(one.series, len(places)), *(getattr(one, name) for name in _CHANGE)] for one in found]
    told = [to_json(one) for one in alerts if one.topic != "faster" and not (one.gone or one.old or one.waiver)]
    content = json.dumps({"series": [list(vars(name).values()) for name in places], "found": rows, "alerts": told})
    write_whole(path, lambda out: out.write(content.encode("utf-8", "surrogatepass")))


_CHANGE = [field.name for field in fields(Finding)][1:]
