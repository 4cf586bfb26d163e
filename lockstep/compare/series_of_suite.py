"""Find the keys of a suite, and read the axes in the label of a case."""

from __future__ import annotations

from lockstep.history.model import SeriesKey
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered


@remembered
def suites(results: Results) -> frozenset[str]:
    """Return the names of all suites in the results, see ``Benchmark.key_suite``."""
    return frozenset(benchmark.key_suite for benchmark in results.benchmarks.values())


def keys_of(results: Results, suite: str, machine: str | None = None) -> list[SeriesKey]:
    """Return the keys of a suite, in the order of the series. ``machine`` restricts them to this machine."""
    machines = results.machines if machine is None else [machine]
    return [key for name in machines for key in results.keys(name).of_suite.get(suite, ())]


def axes_of(case: str) -> dict[str, str]:
    """Return the axes in the label of a case: ``M=8,bias`` → ``{"M": "8", "bias": "true"}``."""
    pairs = (part.partition("=") for part in case.split(",") if part)
    return {name: value if equals else "true" for name, equals, value in pairs}
