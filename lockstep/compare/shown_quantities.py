"""Define the quantities that pages can show of a series at a commit, with labels and units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.history.snapshot import Results
from lockstep.record.quantity import COST_QUANTITIES, EXACT, Better, benchmark_name


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that a row can show: its name, label, unit and better direction."""

    name: str
    label: str
    unit: str
    better: Better = "lower"


QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("latency", "Latency", "µs"),
        Quantity("speedup", "Speedup", "×", "higher"),
        Quantity("floor", "% of floor", "%", "higher"),
        Quantity("bandwidth", "Bandwidth", "GB/s", "higher"),
        Quantity("compute", "Compute", "TFLOP/s", "higher"),
        Quantity("error", "Error", ""),
    )
}


#: A cost, an exact quantity, or a number of another project that is not in seconds. The benchmark gives its unit and
#: its better direction.
VALUE = "value"


#: The unit in which numbers are shown and the factor to it, for units that are not shown as they are stored.
SHOWN_AS = {"bytes": ("MB", 1e-6), "seconds": ("µs", 1e6), "J": ("mJ", 1e3), "x": ("×", 1.0)}


def related_suites(results: Results, suite: str) -> Mapping[str, str]:
    """Return the label of each quantity of the Lockstep suite to which ``suite`` belongs, by the name that pages show.

    For example, "linear" shows latency and speedup, "linear.host" a cost, and "linear.registers" an exact quantity. {}
    for another project's suite.
    """
    suite_benchmarks = [benchmark for benchmark in results.benchmarks.values() if benchmark.of_suite]
    named = next((benchmark.suite for benchmark in suite_benchmarks if benchmark.key_suite == suite), None)
    key_suites = {benchmark.key_suite for benchmark in suite_benchmarks if benchmark.suite == named}
    labels = {named or "": "time"}
    labels |= {benchmark_name(named or "", name): name.replace("_", " ") for name in (*COST_QUANTITIES, *EXACT)}
    return {key_suite: label for key_suite, label in labels.items() if key_suite in key_suites}


def quantities_of(results: Results, suite: str) -> tuple[str, ...]:
    """Return the names of the quantities that a suite can have, see ``Benchmark.key_suite``."""
    benchmark = results.benchmarks.get(suite)
    if benchmark is None:
        return tuple(QUANTITIES)
    return ("latency" if benchmark.part == "latency" else VALUE,)
