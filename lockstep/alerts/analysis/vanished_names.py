"""Name what vanished and what began in few words: a class or module that did as a whole by its own name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lockstep.record.series_name import SeriesName


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
    def size(self) -> tuple[str, int, frozenset[str]]:
        """What a renamed subject keeps: the benchmark of single series, the number of cases, the units."""
        cases = {(name.case, name.l2) for name in self.series}
        return self.within, len(cases), frozenset(name.quantity for name in self.series)


def in_few_words(subjects: Iterable[Subject], others: Iterable[str]) -> list[str]:
    """Name subjects: a class or module to which nothing else belongs by its own name and its number of benchmarks.

    Args:
        others: the labels of the other benchmarks.
    """
    rooms = {room for label in others for room in _rooms(label)}
    counts: dict[str, list[Subject]] = defaultdict(list)
    for subject in subjects:
        whole = [room for room in _rooms(subject.label) if room not in rooms] if not subject.within else []
        counts[whole[-1] if whole else subject.label].append(subject)
    return [_counted(name, subjects) for name, subjects in counts.items()]


def _rooms(label: str) -> Iterable[str]:
    """Yield the class, the module and the packages of a benchmark, the innermost first."""
    while "." in label:
        label = label.rpartition(".")[0]
        yield label


def _counted(name: str, subjects: Sequence[Subject]) -> str:
    return subjects[0].label if len(subjects) == 1 else f"{name} ({len(subjects)} benchmarks)"
