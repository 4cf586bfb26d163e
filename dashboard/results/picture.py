"""A frozen picture of a results folder, and the questions that it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dashboard.results.model import Benchmark, Commit, Machine, Point, Problem, Run, Series, Trend


class Results:
    """Everything that a results folder says, as it was at one refresh. Safe to use from several threads.

    Attributes:
        root: the folder.
        machines: by name, those that have points.
        runs: every result file that could be read.
        benchmarks: by asv's name.
        versions: texts of the benchmarks' versions; ``Trend.version`` holds indices.
        problems: what could not be read.
    """

    root: Path
    machines: Mapping[str, Machine]
    runs: tuple[Run, ...]
    benchmarks: Mapping[str, Benchmark]
    versions: tuple[str, ...]
    problems: tuple[Problem, ...]

    def commits(self, machine: str | None = None) -> tuple[Commit, ...]:
        """Commits that a machine (``None``: any) has results of, oldest first; () for an unknown machine."""
        raise NotImplementedError

    def runs_of(self, machine: str) -> tuple[Run, ...]:
        """Runs of a machine in the order of their commits."""
        raise NotImplementedError

    def series(
        self,
        machine: str | None = None,
        family: str | None = None,
        suite: str | None = None,
        benchmark: str | None = None,
        quantity: str | None = None,
        axes: Mapping[str, str] | None = None,
    ) -> tuple[Series, ...]:
        """Series that were ever measured, in order of machine, benchmark and parameters; ``None`` filters nothing.

        Args:
            machine, family, suite, benchmark, quantity: exact names, see ``Machine`` and ``Benchmark``.
            axes: values that the parameters of these names must have.
        """
        raise NotImplementedError

    def trends(self, series: Iterable[Series] | None = None) -> Iterator[Trend]:
        """Each of the series (``None``: all) over its commits; in one pass, so ask for many at once.

        Series come machine by machine in the order of ``series()``; those without a point are left out.
        """
        raise NotImplementedError

    def points(self, series: Series) -> list[Point]:
        """Every point of one series with all that is known of it, oldest first."""
        raise NotImplementedError

    def latest(self, machine: str) -> list[Point]:
        """The newest point of every series of a machine, in the order of ``series()``."""
        raise NotImplementedError

    def at(self, commit: str, machine: str | None = None) -> list[Point]:
        """Every point of a commit (its full hash) on a machine, ``None``: on all; in the order of ``series()``."""
        raise NotImplementedError
