"""Keep what every series of a machine reported, in columns, and add the reports of new commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.analysis.detector_state import Points
from lockstep.alerts.analysis.followed_series import Followed, by_version, common_baselines, name_of, paired_numbers
from lockstep.alerts.analysis.reports import Reports, ReportState
from lockstep.detect import Trend as Values
from lockstep.detect.detector import Ints
from lockstep.history.model import STATES, Trend
from lockstep.history.reader import Numbers
from lockstep.history.snapshot import Results
from lockstep.record.quantity import PAIRED
from lockstep.record.series_name import SeriesName

Mask = NDArray[np.bool_]

#: A run of equal reports: first commit, last commit, state, version.
Span = tuple[int, int, int, int]

_STATES: tuple[ReportState, ...] = ("number", "failed", "na")

#: Index in ``_STATES`` by a state's code.
_OF_STATE = np.array([_STATES.index(state) if state in ("failed", "na") else 0 for state in STATES])

_COLUMNS = ("number", "name", "ours", "row", "version", "paired", "baseline", "span")


@dataclass(frozen=True, eq=False)
class SeriesReports:
    """What the series of a machine reported, in the order of the store. Each array has one entry per series.

    Attributes:
        texts: the texts that ``version``, ``baseline`` and the spans refer to by index.
        number: number of each series, see ``Results.number``.
        name: name of each series.
        ours: whether the series belongs to a Lockstep suite.
        row: row in the detector that has the series' newest numbers; −1 if the series is not followed.
        version: benchmark version of the newest number; −1 if the series never had a number.
        paired: whether the paired ratio is followed instead of the number.
        baseline: baseline of the newest point.
        span: the newest span of equal reports [series, 4], see ``Span``.
        earlier: the older spans, by the index of the series. Series with one span are left out.
    """

    texts: Sequence[str]
    number: Ints
    name: Sequence[SeriesName]
    ours: Mask
    row: Ints
    version: Ints
    paired: Mask
    baseline: Ints
    span: Ints
    earlier: Mapping[int, Sequence[Span]]

    @classmethod
    def of(
        cls, results: Results, trends: Sequence[Trend], series: Mapping[str, Followed], baseline_of: Mapping[int, str]
    ) -> SeriesReports:
        """Return the reports of all points of the series.

        Args:
            trends: all trends of a machine, in the order of the store.
            series: the followed series by row, in the detector's order.
            baseline_of: the baseline of each series' newest point, by the series' number; "" for none.
        """
        texts = _TextTable(())
        of_version = [texts.place(version) for version in results.versions]
        rows = {
            (followed_series.trend.series, int(followed_series.trend.version[0])): place
            for place, followed_series in enumerate(series.values())
        }
        points = list(series.values())
        columns: dict[str, list[Any]] = defaultdict(list)
        earlier: dict[int, Sequence[Span]] = {}
        for place, trend in enumerate(trends):
            # Take the version of the newest commit, not the version that appeared last, because a benchmark may return
            # to an earlier version.
            newest = max(by_version(trend), key=lambda points: int(points.commit[-1]), default=None)
            version = -1 if newest is None else int(newest.version[0])
            row = rows.get((trend.series, version), -1)
            number = results.number(trend.series)
            columns["number"].append(number)
            columns["name"].append(name_of(trend.series, trend.benchmark))
            columns["ours"].append(trend.benchmark.measured)
            columns["row"].append(row)
            columns["version"].append(of_version[version] if version >= 0 else -1)
            columns["paired"].append(row >= 0 and paired_numbers(points[row].trend))
            columns["baseline"].append(texts.place(baseline_of.get(number, "")))
            *before, last = _spans(trend, of_version)
            columns["span"].append(last)
            if before:
                earlier[place] = before
        return cls(texts.all, **_arrays(columns), earlier=earlier)

    def __len__(self) -> int:
        return len(self.name)

    @property
    def baselines(self) -> Mapping[str, str]:
        """The baseline of each Lockstep suite, by the newest points."""
        baseline_texts = zip(np.flatnonzero(self.ours).tolist(), self.baseline[self.ours].tolist(), strict=True)
        return common_baselines((self.name[place].suite, self.texts[text]) for place, text in baseline_texts)

    def reports(self) -> list[Reports]:
        """Return all series' reports for the module ``freshness``. A ratio and its time count as one series."""
        reports = []
        for place, (name, span) in enumerate(zip(self.name, self.span.tolist(), strict=True)):
            if self.ours[place] and name.quantity in PAIRED.values():
                continue
            spans = (*self.earlier.get(place, ()), span)
            points = [
                (at, _STATES[state], self.texts[text]) for a, b, state, text in spans for at in dict.fromkeys((a, b))
            ]
            reports.append(Reports(name, *zip(*points, strict=True)))
        return reports

    def measured(self, new: Numbers) -> dict[str, list[int]]:
        """Return the positions of the new commits at which a series of the family was measured, by family."""
        commits: dict[str, set[int]] = defaultdict(set)
        places = {number: place for place, number in enumerate(self.number.tolist())}
        for number, commit in zip(new.series.tolist(), new.commit.tolist(), strict=True):
            commits[self.name[places[number]].family].add(commit)
        return {family: sorted(at) for family, at in commits.items()}

    def added(self, new: Numbers, results: Results) -> tuple[SeriesReports, list[Points]] | None:
        """Return the reports after new commits, and the points that these commits add to the detector.

        Args:
            new: all points of the commits.

        Returns:
            ``None`` if the commits do more than continue the followed series: they add a series, change a benchmark
            version or a baseline, or hold a ratio without paired rounds.
        """
        texts = _TextTable(self.texts)
        of_version = np.array([texts.place(version) for version in results.versions], dtype=np.int64)
        order = np.argsort(self.number)
        places = order[np.searchsorted(self.number[order], new.series).clip(max=len(order) - 1)]
        if not np.array_equal(self.number[places], new.series):
            return None
        state = replace(self, span=self.span.copy(), baseline=self.baseline.copy(), earlier=dict(self.earlier))
        points = []
        for commit in np.unique(new.commit).tolist():
            at = np.flatnonzero(new.commit == commit)
            place, version = places[at], of_version[new.version[at]]
            commit_points = self._points(new, at, place, version)
            if commit_points is None:
                return None
            points.append(commit_points)
            state._report(place, commit, _OF_STATE[new.state[at]], version)
            assert new.baseline is not None
            state.baseline[place] = [texts.place(text) for text in new.baseline[at].tolist()]
        state = replace(state, texts=texts.all)
        return (state, points) if state.baselines == self.baselines else None

    def _points(self, new: Numbers, at: Ints, place: Ints, version: Ints) -> Points | None:
        numbers = np.isfinite(new.value[at])
        at, place, version = at[numbers], place[numbers], version[numbers]
        followed, paired = self.row[place] >= 0, self.paired[place]
        if (followed & ((version != self.version[place]) | (paired & ~np.isfinite(new.log_ratio[at])))).any():
            return None
        if not self._ignored(place[~followed]):
            return None
        at, place, paired = at[followed], place[followed], paired[followed]
        values = np.where(paired, np.exp(new.log_ratio[at]), new.value[at])
        trend = Values(values, np.where(paired, new.ratio_error[at], new.error[at]))
        assert trend.errors is not None
        return Points(self.row[place], trend.values, trend.errors)

    def _ignored(self, places: Ints) -> bool:
        """Return whether the detector follows none of these series.

        It does not follow a time that has a ratio, and the ratio of a baseline.
        """
        baselines = self.baselines if len(places) else {}
        names = [self.name[place] for place in places.tolist()]
        unfollowed = [
            name.quantity not in PAIRED.values() or name.variant == baselines.get(name.suite) for name in names
        ]
        return bool((self.ours[places] & (self.version[places] >= 0)).all()) and all(unfollowed)

    def _report(self, places: Ints, commit: int, state: Ints, version: Ints) -> None:
        """Add a commit's reports to the series' spans of equal reports, in place."""
        reported = np.stack([state, version], axis=1)
        differs = (self.span[places, 2:] != reported).any(axis=1)
        assert isinstance(self.earlier, dict)
        for place in places[differs].tolist():
            self.earlier[place] = [*self.earlier.get(place, ()), tuple(self.span[place].tolist())]
        self.span[places[differs], 0] = commit
        self.span[places, 1] = commit
        self.span[places, 2:] = reported

    def to_json(self) -> dict[str, Any]:
        """Return the reports as lists, texts and numbers, which can be written as JSON."""
        content = {
            name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in vars(self).items()
        }
        return content | {
            "name": [astuple(name) for name in self.name],
            "earlier": list(self.earlier.items()),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SeriesReports:
        """Return the reports that ``to_json`` converted.

        Raises:
            KeyError, TypeError, ValueError: the content does not have the form that ``to_json`` gives.
        """
        columns = {name: content[name] for name in _COLUMNS}
        columns["name"] = [SeriesName(*name) for name in content["name"]]
        reports = cls(content["texts"], **_arrays(columns), earlier=dict(content["earlier"]))
        if {len(column) for column in columns.values()} - {len(reports)}:
            raise ValueError("the columns of the stored reports differ in length")
        return reports


class _TextTable:
    """Numbers texts, so that arrays can refer to a text by its index."""

    def __init__(self, known: Sequence[str]) -> None:
        self._places = {text: place for place, text in enumerate(known)}

    @property
    def all(self) -> list[str]:
        """The texts in the order of their indices."""
        return list(self._places)

    def place(self, text: str) -> int:
        """Return the text's index. A new text gets the next free index."""
        return self._places.setdefault(text, len(self._places))


def _arrays(columns: Mapping[str, Any]) -> dict[str, Any]:
    arrays: dict[str, Any] = {name: columns[name] for name in _COLUMNS}
    for name in _COLUMNS:
        if name != "name":
            arrays[name] = np.array(columns[name], dtype=np.bool_ if name in ("ours", "paired") else np.int64)
    arrays["span"] = arrays["span"].reshape(-1, 4)
    return arrays


def _spans(trend: Trend, of_version: Sequence[int]) -> list[Span]:
    """Return the reports of a series as spans, each of which stands for consecutive equal reports.

    ``of_version`` maps the index of a version to the index of its text.
    """
    state, version = _OF_STATE[trend.state], trend.version.astype(np.int64)
    turns = np.flatnonzero((np.diff(state) != 0) | (np.diff(version) != 0))
    starts, ends = np.append(0, turns + 1), np.append(turns, len(trend) - 1)
    columns = trend.commit[starts], trend.commit[ends], state[starts], np.array(of_version)[version[starts]]
    return list(zip(*(column.tolist() for column in columns), strict=True))
