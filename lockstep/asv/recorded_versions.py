"""Compare the versions of suites with the recorded ones in asv's table of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lockstep.asv.undiscovered_benchmarks import read_table
from lockstep.suite.definition import FIRST_STATED, Suite, SuiteError, is_digest


def refuse_split(results: Path, suites: Iterable[Suite]) -> None:
    """Refuse to start new series of a suite whose series are recorded under a digest and that does not say why.

    Up to protocol 6 the version of a suite without ``continues`` was a digest of its source.

    Raises:
        SuiteError: the suite has its first stated version, and ``benchmarks.json`` has a digest as its version.
    """
    recorded = {entry["suite"]: entry["version"] for entry in read_table(results).values() if "suite" in entry}
    for suite in suites:
        version = recorded.get(suite.name, "")
        if suite.benchmark_version == FIRST_STATED and is_digest(version):
            raise SuiteError(
                f"suite {suite.name}: {results / 'benchmarks.json'} has its series under version {version}, which an "
                f'earlier Lockstep computed. Add continues = "{FIRST_STATED}", "{version}" to class '
                f'{type(suite).__name__} to continue them, or version = "2" to start new ones'
            )
