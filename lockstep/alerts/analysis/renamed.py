"""Suggest what a benchmark or parameter value that vanished is called now, and name what vanished in few words.

A candidate began where the other ended, with as many cases in the same unit. Either its name is alike and its numbers
differ by less than half, or its numbers lie within 10 % and their unit is known.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from lockstep.alerts.analysis.followed_series import NO_UNIT
from lockstep.record.series_name import SeriesName

#: Reads the median of the first and of the last numbers of series. A series without numbers is left out.
Numbers = Callable[[Collection[SeriesName]], Iterable[tuple[SeriesName, tuple[float, float]]]]

#: Share of equal letters from which two names are alike (``difflib``).
_ALIKE = 0.6

#: Largest log ratio of the numbers of a benchmark and its candidate: if the name is alike, and if only the numbers are.
_ALIKE_BY_NAME, _ALIKE_BY_NUMBERS = math.log(1.5), math.log(1.1)


@dataclass(frozen=True)
class Subject:
    """A benchmark, or one series of a benchmark that is still measured.

    Attributes:
        label: the name for people: ``ops.Sort.time_small``; of a single series with its case.
        within: the label of the benchmark of a single series; "" for a whole benchmark.
        series: the series of the benchmark, or the single series.
    """

    label: str
    within: str
    series: tuple[SeriesName, ...]

    @property
    def cases(self) -> set[tuple[str, str]]:
        """The case and the cache state of each series."""
        return {(name.case, name.l2) for name in self.series}

    @property
    def size(self) -> tuple[str, int, frozenset[str]]:
        """What a subject and its candidate share: the benchmark of single series, the number of cases, the units."""
        return self.within, len(self.cases), frozenset(name.quantity for name in self.series)


def renames(gone: Sequence[Subject], begun: Sequence[Subject], numbers: Numbers) -> dict[Subject, Subject]:
    """Return the candidate of each subject that has one. No two subjects have the same candidate."""
    pairs = [(old, new) for old in gone for new in begun if old.size == new.size]
    known = dict(numbers({name for pair in pairs for subject in pair for name in subject.series})) if pairs else {}
    scored = []
    for old, new in pairs:
        likeness, distance = _likeness(old, new), _distance(old, new, known)
        limit = _ALIKE_BY_NAME if likeness >= _ALIKE else _ALIKE_BY_NUMBERS if _unit_known(old) else 0.0
        if distance < limit:
            scored.append((-likeness, distance, old.label, new.label, old, new))
    found: dict[Subject, Subject] = {}
    for *_, old, new in sorted(scored, key=lambda entry: entry[:4]):
        if old not in found and new not in found.values():
            found[old] = new
    return {old: found[old] for old in gone if old in found}


def _likeness(old: Subject, new: Subject) -> float:
    """Return how alike two names are, 0 … 1, without the parts that they share at both ends.

    Two benchmarks of one class with the same parameters, such as the variants of a suite, are alike.
    """
    before, after = [old.label.removeprefix(old.within)], [new.label.removeprefix(new.within)]
    if not old.within:
        before, after = old.label.split("."), new.label.split(".")
        if before[:-1] == after[:-1] and old.cases == new.cases and any(case for case, _ in old.cases):
            return 1.0
        for end in (0, -1):
            while before[1:] and after[1:] and before[end] == after[end]:
                del before[end], after[end]
    matcher = SequenceMatcher(None, ".".join(before), ".".join(after), autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= _ALIKE else 0.0


def _distance(old: Subject, new: Subject, numbers: Mapping[SeriesName, tuple[float, float]]) -> float:
    """Return the median log ratio of the numbers, both sorted; infinity if unknown."""
    before = sorted(numbers[name][1] for name in old.series if name in numbers)
    after = sorted(numbers[name][0] for name in new.series if name in numbers)
    if not before or len(before) != len(after):
        return math.inf
    return statistics.median(_log_ratio(a, b) for a, b in zip(before, after, strict=True))


def _unit_known(subject: Subject) -> bool:
    return all(name.quantity != NO_UNIT for name in subject.series)


def _log_ratio(a: float, b: float) -> float:
    return 0.0 if a == b else abs(math.log(b / a)) if a and b and (a < 0) == (b < 0) else math.inf


def in_few_words(gone: Iterable[Subject], alive: Iterable[str]) -> list[str]:
    """Name what is gone: a class or module of which nothing is left by its own name and its number of benchmarks.

    Args:
        alive: the labels of the benchmarks that are still measured.
    """
    rooms = {room for label in alive for room in _rooms(label)}
    counts: dict[str, list[Subject]] = defaultdict(list)
    for subject in gone:
        empty = [room for room in _rooms(subject.label) if room not in rooms] if not subject.within else []
        counts[empty[-1] if empty else subject.label].append(subject)
    return [_counted(name, subjects) for name, subjects in counts.items()]


def pairs_in_few_words(pairs: Mapping[Subject, Subject]) -> list[str]:
    """Name each subject and its candidate, of a class or module that was renamed as a whole only the two."""
    counts: dict[tuple[str, str], list[Subject]] = defaultdict(list)
    for old, new in pairs.items():
        names = old.label.split("."), new.label.split(".")
        while not old.within and len(names[0]) > 1 and len(names[1]) > 1 and names[0][-1] == names[1][-1]:
            del names[0][-1], names[1][-1]
        counts[".".join(names[0]), ".".join(names[1])].append(old)
    listed = []
    for (before, after), subjects in counts.items():
        if len(subjects) == 1:
            before, after = subjects[0].label, pairs[subjects[0]].label
        listed.append(f"{_counted(before, subjects)} is perhaps {after}")
    return listed


def _rooms(label: str) -> Iterable[str]:
    """Yield the class, the module and the packages of a benchmark, the innermost first."""
    while "." in label:
        label = label.rpartition(".")[0]
        yield label


def _counted(name: str, subjects: Sequence[Subject]) -> str:
    return subjects[0].label if len(subjects) == 1 else f"{name} ({len(subjects)} benchmarks)"
