"""The overview's choice of series: a machine, a quantity such as the time or a cost, and a cache state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.alerts.analysis.latest_findings import Findings, MachineFindings
from lockstep.compare.read_rows import newest_rows
from lockstep.compare.row_table import RowTable
from lockstep.compare.series_status import reference
from lockstep.history.model import STATES, Benchmark, Commit
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.record.quantity import COST_QUANTITIES, EXACT
from lockstep.suite.thresholds import Thresholds

#: Milliseconds after which a machine without a new number counts as ended, beside machines that have new ones.
_ENDED_MS = 7 * 86_400_000


@remembered
def opening_machine(results: Results) -> str:
    """Return the machine that the overview shows first: of the long histories that still grow, the longest.

    A history is long if it has at least half as many commits as any other, so that a laptop with one test run does not
    count. It still grows if it was measured in the week before the newest number of them all. A target that was only
    compiled for is shown only if no machine has measured.
    """
    measured = [
        name
        for name in results.machines
        if not all(results.benchmarks[series.benchmark].exact for series in results.series(machine=name))
    ] or list(results.machines)
    commits = {name: len(results.commits(name)) for name in measured}
    at = {name: _measured_at(results, name) for name in measured if 2 * commits[name] >= max(commits.values())}
    growing = (name for name in at if at[name] >= max(at.values()) - _ENDED_MS)
    return max(growing, key=lambda name: (commits[name], at[name], name))


def newest_first(results: Results) -> list[str]:
    """Return the names of the machines, the one that measured last first."""
    return sorted(results.machines, key=lambda name: -_measured_at(results, name))


def _measured_at(results: Results, machine: str) -> int:
    """Return when the machine last measured (ms since 1970), or if unknown, the date of its newest commit."""
    return max(run.measured_at for run in results.runs_of(machine)) or results.machines[machine].last_date


#: The time of a call with its speedup, and the numbers of other projects that are no times.
TIME, OTHER = "time", "other"


def quantity_of(benchmark: Benchmark) -> str:
    """Return the quantity of a benchmark: ``TIME``, a cost, an exact quantity, or ``OTHER``."""
    if benchmark.ours or not benchmark.of_suite:
        return TIME if benchmark.ours or benchmark.part == "latency" else OTHER
    return benchmark.quantity


def label(quantity: str) -> str:
    """Return a quantity's name for people: "host time", "behind speedup", "other numbers"."""
    named = {"host": "host time", "compile": "compile time", OTHER: "other numbers"}
    return named.get(quantity, quantity.replace("_", " "))


@remembered
def quantities(results: Results, machine: str) -> Sequence[str]:
    """Return the quantities of a machine's series, the time first."""
    names = {series.benchmark for series in results.series(machine=machine)}
    known = {quantity_of(results.benchmarks[name]) for name in names}
    return tuple(name for name in (TIME, *COST_QUANTITIES, *EXACT, OTHER) if name in known)


def shown_quantity(results: Results, machine: str, quantity: str) -> str:
    """Return the quantity that the overview shows: the chosen one, or the first if the machine lacks it."""
    known = quantities(results, machine)
    return quantity if quantity in known else known[0] if known else TIME


@dataclass(frozen=True)
class Choice:
    """Which series of a machine the overview shows, and with what it compares them.

    Attributes:
        l2: the cache state, or "all".
        since, findings, thresholds: see ``lockstep.compare.series_status.statuses``.
    """

    machine: str
    l2: str
    quantity: str
    since: Commit | None
    findings: MachineFindings | None
    thresholds: Thresholds


def chosen(
    results: Results, findings: Findings, machine: str, l2: str, quantity: str, since: str, visit: int | None
) -> Choice:
    """Return the choice of the page's controls. ``since`` and ``visit`` are those of ``reference``."""
    compared = reference(results, machine, since, visit or 0)
    return Choice(machine, l2, quantity, compared, findings.of_machine(results, machine), findings.thresholds)


def measured_rows(results: Results, machine: str, l2: str, quantity: str) -> RowTable:
    """Return the newest rows of these series, without those that the machine cannot measure."""
    rows = newest_rows(results, machine)
    rows = rows.select(places(results, machine, rows, l2, quantity))
    return rows.select(rows.columns["state"] != STATES.index("na"))


def places(results: Results, machine: str, rows: RowTable, l2: str, quantity: str) -> NDArray[np.intp]:
    """Return the indices of the machine's rows in a cache state and of a quantity."""
    quantity = shown_quantity(results, machine, quantity)
    chosen = {name for name, benchmark in results.benchmarks.items() if quantity_of(benchmark) == quantity}
    series = rows.series_keys.series
    ranks = rows.columns["rank"].tolist()
    found = (at for at, rank in enumerate(ranks) if series[rank].benchmark in chosen)
    if l2 != "all":
        keys = rows.keys
        found = (at for at in found if keys[at].l2 in ("", l2))
    return np.fromiter(found, dtype=np.intp)
