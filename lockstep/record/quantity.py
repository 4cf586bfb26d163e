"""Define the quantities that a history follows for each kernel, with their units and their better direction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

#: The better direction of a number. "neither": no direction is better, or nobody has stated it.
Better = Literal["lower", "higher", "neither"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity of which each variant and case has a series of its own.

    Attributes:
        name: "registers", for example, which gives the asv benchmark ``linear.registers``.
        unit: the unit in asv's files; pages scale "bytes" and "seconds".
        about: what is counted, in one line.
        better: the better direction.
        exact: whether every run of the same code gives the same number, so that any difference is a change.
    """

    name: str
    unit: str
    about: str
    better: Better = "lower"
    exact: bool = False


QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("latency", "seconds", "time of a call"),
        Quantity("speedup", "x", "the baseline's time over the variant's", better="higher"),
        Quantity("host", "seconds", "time that the host takes to call and launch, with the GPU busy"),
        Quantity("behind", "seconds", "time of a call behind a fixed kernel, minus the time of that kernel"),
        Quantity("behind_speedup", "x", "the baseline's `behind` over the variant's", better="higher"),
        Quantity("energy", "J", "energy that the board takes for a call, idle power included"),
        Quantity("compile", "s", "time to compile the kernels one after another, with an empty cache"),
        Quantity("launches", "launches", "Triton and Gluon launches and torch operator calls, per call", exact=True),
        Quantity("allocations", "allocations", "allocations of device memory per call", exact=True),
        Quantity("memory", "bytes", "most device memory that a call holds at once", exact=True),
        Quantity("kept", "bytes", "device memory that is held after the call", exact=True),
        Quantity("registers", "registers", "registers per thread, of the kernel with the most", exact=True),
        Quantity("spills", "B", "bytes that each thread spills, of the kernel with the most", exact=True),
        Quantity("shared", "B", "shared memory per block, of the kernel with the most", exact=True),
        Quantity("instructions", "instructions", "length of the machine code of the kernels launched", exact=True),
    )
}

#: Quantities that Lockstep finds by tracing and compiling, without a GPU. The code size is not included, because it
#: follows from the number of instructions: each has 16 bytes on every architecture from sm_70 on.
EXACT: tuple[str, ...] = tuple(quantity.name for quantity in QUANTITIES.values() if quantity.exact)

#: The quantities of each cost. A cost is measured besides latency and speedup if a suite or ``--costs`` names it.
COSTS: Mapping[str, tuple[str, ...]] = {
    "host": ("host",),
    "behind": ("behind", "behind_speedup"),
    "energy": ("energy",),
    "compile": ("compile",),
}

#: The quantities of all costs.
COST_QUANTITIES: tuple[str, ...] = tuple(name for names in COSTS.values() for name in names)

#: By time, its ratio to the baseline's time. The detector follows the ratio in place of the time if both are measured.
PAIRED: Mapping[str, str] = {"latency": "speedup", "behind": "behind_speedup"}

#: Quantities that follow from what the GPU is given to do, whatever the host does.
OF_GPU: frozenset[str] = frozenset({*PAIRED, *PAIRED.values(), "energy"})

#: Quantities that are times or ratios of times, so that worse means slower.
TIMED: tuple[str, ...] = tuple(
    quantity.name for quantity in QUANTITIES.values() if quantity.unit in ("seconds", "s", "x")
)

#: asv's type of the benchmarks with costs.
COST_TYPE = "cost"

#: asv's types of the benchmarks that Lockstep measures.
MEASURED_TYPES = ("lockstep", COST_TYPE)

#: The results of the correctness check in a record. They are followed as series, but asv has no benchmarks of them.
CHECKED = ("error", "deterministic")

#: Quantities that do not depend on the time on the device, with the name of their group. Changes of a group get alerts
#: of their own.
APART: Mapping[str, str] = {**dict.fromkeys(CHECKED, "check"), "host": "host", "compile": "compile"}

#: asv's type of the benchmarks with exact quantities.
EXACT_TYPE = "exact"

#: Matches the names of the benchmarks of suites, but not names with asv's own prefixes, which have other types.
SUITE_BENCHMARK = re.compile(
    rf"(?P<family>[\w.]+)\.(?:(?!time_|timeraw_|track_|mem_|peakmem_|(?:{'|'.join(QUANTITIES)})$)(?P<op>\w+?)_)?"
    rf"(?P<quantity>{'|'.join(QUANTITIES)})"
)


def type_of(quantity: str) -> str:
    """Return the ``type`` that asv's benchmarks of a quantity have, which selects the class that measures them."""
    return EXACT_TYPE if QUANTITIES[quantity].exact else COST_TYPE if quantity in COST_QUANTITIES else "lockstep"


def cost_of(quantity: str) -> str:
    """Return the cost in ``COSTS`` that includes a quantity; "" if the quantity is not a cost."""
    return next((name for name, quantities in COSTS.items() if quantity in quantities), "")


def benchmark_name(suite: str, quantity: str) -> str:
    """Return asv's name of a benchmark, such as ``linear.registers`` for the suite "linear".

    The name of a suite with an operation has an underscore: ``grouped.mlp_registers`` for "grouped.mlp".
    """
    return f"{suite}{'_' if '.' in suite else '.'}{quantity}"
