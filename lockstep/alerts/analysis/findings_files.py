"""Write the findings of an analysis, one file per machine, and read them for the dashboard's pages.

A page reads only the findings of the machine that it shows. The noise and the levels of a series are read from the
detector's file when a page needs them.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.alerts.analysis.cache_files import write_whole
from lockstep.alerts.analysis.detector_state import StoredDetector
from lockstep.alerts.analysis.followed_series import name_in
from lockstep.alerts.cause.attribution import Cause
from lockstep.alerts.model import FoundChange
from lockstep.detect import Analysis
from lockstep.record.series_name import SeriesName

#: The noise of a series, the smallest change that the detector can find in it, and its levels.
Behaviour = Analysis


class MachineFindings:
    """The findings of one machine. Each change, and the behaviour of each series, is read from files on first use.

    Args:
        changes, detector: the files, see ``lockstep.alerts.analysis.cache_files.AnalysisCache``.
        state: the state of the machine's results, see ``Results.state``.

    Attributes:
        changed: the series that have a change.
        noise: run-to-run noise of each followed series (standard deviation of the logarithm); NaN if unknown.

    Raises:
        OSError, ValueError: a file is missing, damaged, or of other results.
    """

    def __init__(self, changes: Path, detector: Path, state: str) -> None:
        self._detector = StoredDetector(detector, state)
        self._analyses: dict[SeriesName, Behaviour] = {}
        # Map the file, so that changes take no memory until a page needs them. The mapping stays valid if
        # the file is deleted. As Python objects, the 24,000 changes of a large machine would take 20 MB.
        with changes.open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        ends = np.flatnonzero(np.frombuffer(self._text, dtype=np.uint8) == ord("\n"))
        try:
            content = json.loads(self._text[: int(ends[0]) if len(ends) else 0])
            self._start, self._end = ends[:-1], ends[1:]
            series, last, suppressed = (np.array(content[name], dtype=np.int32) for name in _INDEX)
            if content["bytes"] != len(self._text) - ends[0] or not len(series) == len(last) == len(ends) - 1:
                raise ValueError(f"{changes} is damaged: its index and its lines differ in number or length")
            names = [SeriesName(*name) for name in content["series"]]
            order = np.lexsort((last, series))
            first = np.searchsorted(series[order], np.arange(len(names) + 1)).tolist()
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{changes} is damaged: {error}") from error
        # The search for line ends has read the whole file. Without this call, its pages count as this process's memory.
        self._text.madvise(mmap.MADV_DONTNEED)
        # A page reads few lines: do not map the lines around them.
        self._text.madvise(mmap.MADV_RANDOM)
        self._last, self._suppressed = last, suppressed.astype(bool)
        self._places = {name: order[first[at] : first[at + 1]] for at, name in enumerate(names)}
        self.changed: Collection[SeriesName] = self._places.keys()
        # A series with several benchmark versions has several entries, the newest last.
        rows = enumerate(zip(self._detector.names, self._detector.noise.tolist(), strict=True))
        noise = {name_in(text): (row, scale) for row, (text, scale) in rows}
        self._rows = {name: row for name, (row, _) in noise.items()}
        self.noise: Mapping[SeriesName, float] = {name: scale for name, (_, scale) in noise.items()}

    @property
    def changes(self) -> tuple[FoundChange, ...]:
        """All changes, reported and suppressed, ordered by series and then from old to new."""
        return tuple(self._finding(name, place) for name, places in self._places.items() for place in places.tolist())

    def reported(self, name: SeriesName, after: int = -1) -> list[FoundChange]:
        """Return the reported changes of a series, oldest first.

        Args:
            after: position of a commit; changes whose ``last`` is at or before it are left out.
        """
        places = self._places.get(name, _NO_PLACES)
        chosen = places[(self._last[places] > after) & ~self._suppressed[places]]
        return [self._finding(name, place) for place in chosen.tolist()]

    def _finding(self, name: SeriesName, index: int) -> FoundChange:
        values = dict(zip(_CHANGE, self._line(index), strict=True))
        return FoundChange(
            **values | {"series": name, "cause": Cause(*values["cause"]), "between": tuple(values["between"])}
        )

    def _line(self, index: int) -> list[Any]:
        """Return the decoded content of a line of the file of changes. Line 0 is the line after the index."""
        content: list[Any] = json.loads(self._text[self._start[index] : self._end[index]])
        return content

    def behaviour(self, name: SeriesName) -> Behaviour | None:
        """Return the noise and levels of a series under its newest benchmark version.

        ``None`` if the detector does not follow the series.
        """
        return self.behaviours([name]).get(name)

    def behaviours(self, names: Sequence[SeriesName]) -> dict[SeriesName, Behaviour]:
        """Return the noise and levels of several series by name, without the series that have none."""
        missing = [name for name in names if name in self._rows and name not in self._analyses]
        if missing:
            try:
                analyses = self._detector.analyses([self._rows[name] for name in missing])
                self._analyses |= dict(zip(missing, analyses, strict=True))
            except ValueError:
                pass
        return {name: self._analyses[name] for name in names if name in self._analyses}


def write_changes(path: Path, findings: Iterable[FoundChange]) -> None:
    """Write the changes of a machine for ``MachineFindings``.

    The first line is an index of the changes. Each change has its own line, so a page decodes only the lines that it
    shows.
    """
    changes = list(findings)
    places: dict[SeriesName, int] = {}
    series = [places.setdefault(change.series, len(places)) for change in changes]
    lines = [
        json.dumps([*(getattr(change, name) for name in _CHANGE[:-1]), [change.cause.kind, change.cause.sentence]])
        for change in changes
    ]
    body = "".join(f"{line}\n" for line in ("", *lines)).encode()
    last, suppressed = [change.last for change in changes], [int(bool(change.suppressed)) for change in changes]
    content = {"series": [astuple(name) for name in places], "bytes": len(body)}
    content |= dict(zip(_INDEX, (series, last, suppressed), strict=True))
    write_whole(path, lambda out: out.write(json.dumps(content).encode() + body))


#: The fields of a change's line, in order. The line holds the cause without its evidence.
_CHANGE = [field.name for field in fields(FoundChange) if field.name not in ("series", "cause")] + ["cause"]
#: For each change, in the order of the lines: the index of its series, ``FoundChange.last``, and 1 if it is suppressed.
_INDEX = ("series_index", "last", "suppressed")
_NO_PLACES = np.empty(0, dtype=np.intp)
