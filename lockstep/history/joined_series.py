"""Join series that the rules ``[[same]]`` of thresholds.toml call the same, without reading a result file again.

The cache stores each point under the number of its own series. A query asks for the numbers of all series that are
joined, and gives their points the number of the series that they belong to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.history.display_names import axes
from lockstep.history.model import Benchmark
from lockstep.history.series_ids import Ids, number_of
from lockstep.suite.thresholds import Same

#: Benchmark and parameter values of a series.
Known = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Joined:
    """Which stored series belong to which series.

    Attributes:
        series: the number of the series to which each joined series belongs.
        versions: the version that counts for the points of a joined series, by its number and the stored version.
    """

    series: Mapping[int, int] = field(default_factory=dict)
    versions: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def stored(self, series: Sequence[int]) -> Sequence[int]:
        """Return the numbers under which the points of these series are stored, in ascending order."""
        if not self.series:
            return series
        asked = set(series)
        return sorted(asked.union(old for old, new in self.series.items() if new in asked))

    def own(self, numbers: Ids) -> Ids:
        """Return the series to which each stored number belongs."""
        belongs = numbers.copy()
        for old, new in self.series.items():
            belongs[numbers == old] = new
        return belongs

    def rename(self, columns: dict[str, NDArray[Any]]) -> None:
        """Give the points of joined series the number and the versions of the series that they belong to."""
        series = columns.get("series")
        if series is None or not self.series:
            return
        if "version" in columns:
            version = columns["version"].copy()
            for (old, stored), counting in self.versions.items():
                version[(series == old) & (columns["version"] == stored)] = counting
            columns["version"] = version
        columns["series"] = self.own(series)


@dataclass(frozen=True)
class SameSeries:
    """What rules of thresholds.toml join.

    Attributes:
        series: see ``Joined``.
        known: every series after the joins, by its number.
        benchmarks_were: the benchmarks of today, by their earlier names.
        refused: why rules were not applied, as sentences.
    """

    series: Mapping[int, int]
    known: Mapping[int, Known]
    benchmarks_were: Mapping[str, str]
    refused: tuple[str, ...]


def same_series(
    rules: Sequence[Same],
    known: Mapping[int, Known],
    benchmarks: Mapping[str, Benchmark],
    files: Sequence[tuple[str, str, str]],
    layouts: Mapping[str, Ids],
) -> SameSeries:
    """Apply the rules for benchmarks and parameters, one after another.

    A rule is refused if two series that it joins have points at the same commit on the same machine.

    Args:
        known: benchmark and parameter values of every stored series, by its number.
        benchmarks: every stored benchmark, by name.
        files: machine, commit and layout of each result file.
        layouts: the numbers of the series in each layout.
    """
    now = dict(known)
    series: dict[int, int] = {}
    benchmarks_were: dict[str, str] = {}
    refused: list[str] = []
    for rule in rules:
        if rule.kind == "machine":
            continue
        renamed = _renamed(rule, now, benchmarks)
        if not renamed:
            refused.append(f"{rule.where}: was names no {rule.kind} of these results: {', '.join(rule.was)}")
            continue
        belongs = {old: number_of(*new) for old, new in renamed.items()}
        joined = {old: belongs.get(new, new) for old, new in series.items()} | belongs
        if problem := _clash(joined, known, files, layouts):
            refused.append(f"{rule.where} is not applied: {problem}")
            continue
        series = joined
        now = {number: names for number, names in now.items() if number not in belongs}
        now |= {belongs[old]: names for old, names in renamed.items()}
        if rule.kind == "benchmark":
            benchmarks_were |= dict.fromkeys(rule.was, rule.name)
    return SameSeries(series, now, benchmarks_were, tuple(refused))


def _renamed(rule: Same, known: Mapping[int, Known], benchmarks: Mapping[str, Benchmark]) -> dict[int, Known]:
    """Return the names of today of each series that a rule renames, by the series' number."""
    if rule.kind == "benchmark":
        return {number: (rule.name, values) for number, (name, values) in known.items() if name in rule.was}
    shown = {number: _shown(name, values, benchmarks) for number, (name, values) in known.items() if values}
    texts = {
        known[number][0]: values[1]
        for number, pairs in shown.items()
        for values in zip(pairs, known[number][1], strict=True)
        if values[0] == rule.name
    }
    found: dict[int, Known] = {}
    for number, pairs in shown.items():
        name, values = known[number]
        if any(pair in rule.was for pair in pairs):
            text = texts.get(name, rule.name.partition("=")[2])
            new = (text if pair in rule.was else value for pair, value in zip(pairs, values, strict=True))
            found[number] = name, tuple(new)
    return found


def _shown(name: str, values: Sequence[str], benchmarks: Mapping[str, Benchmark]) -> list[str]:
    """Return each parameter with its value as pages show it: ``tol=0.5``."""
    # A benchmark that exists by an earlier rule alone has no parameter names.
    return [f"{key}={value}" for key, value in axes(benchmarks.get(name, Benchmark(name)), values)]


def _clash(
    series: Mapping[int, int],
    known: Mapping[int, Known],
    files: Sequence[tuple[str, str, str]],
    layouts: Mapping[str, Ids],
) -> str:
    """Name two series that would be one and have points at the same commit, "" if there are none."""
    of_new: dict[int, list[int]] = defaultdict(list)
    for old, new in series.items():
        of_new[new].append(old)
    involved = np.array(sorted({*of_new, *series}), dtype=np.int64)
    within = {layout: involved[np.isin(involved, numbers)].tolist() for layout, numbers in layouts.items()}
    at: dict[tuple[str, str], set[int]] = defaultdict(set)
    for machine, commit, layout in files:
        at[machine, commit].update(within[layout])
    for (machine, commit), numbers in at.items():
        for new, olds in of_new.items():
            present = [number for number in (new, *olds) if number in numbers]
            if len(present) > 1:
                labels = [" ".join((known[number][0], *known[number][1])) for number in present[:2]]
                return f"{labels[1]} and {labels[0]} both have points at commit {commit[:8]} on {machine}"
    return ""


def version_joins(
    series: Mapping[int, int], first_and_last: Mapping[int, tuple[tuple[int, int], tuple[int, int]]]
) -> dict[tuple[int, int], int]:
    """Return which version counts for the last points of each joined series: the one with which its successor begins.

    A rename changes asv's version of a benchmark, which is a digest of its source, but not what is measured.

    Args:
        series: see ``Joined``.
        first_and_last: place and version of the first and of the last point of each series, by its stored number.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for old, new in series.items():
        members[new] += [old] if old in first_and_last else []
    versions: dict[tuple[int, int], int] = {}
    for new, joined in members.items():
        parts = sorted({*joined, *([new] if new in first_and_last else [])}, key=lambda number: first_and_last[number])
        following: int | None = None
        for number in reversed(parts):
            (_, first), (_, last) = first_and_last[number]
            if following is not None and last != following:
                versions[number, last] = following
            following = versions.get((number, first), first)
    return versions
