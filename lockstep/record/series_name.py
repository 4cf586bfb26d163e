"""Define the name of a series, which alerts and commands share."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.record.quantity import CHECKED, EXACT, TIMED, cost_of

#: The variant that a family's public function selects: for each case, the kernel of another variant. No suite has to
#: have one.
BEST = "best"


@dataclass(frozen=True, order=True, slots=True)
class SeriesName:
    """The name that identifies a series in alerts, and from which the commands that measure it are made.

    Attributes:
        machine: name of the machine; "" for any. If Lockstep measured the series, the name ends with the clock state.
        family: family of the suite, or the suite of another project's benchmark.
        suite: the Lockstep suite; for another project's benchmark, its name without the last part.
        variant: the variant of the suite; for another project's benchmark, the last part of its name.
        case: label of the case, or the parameters as ``size=100, dtype=float32``.
        l2: cache state; "" for exact quantities and for other projects' benchmarks.
        quantity: a quantity of ``lockstep.record.quantity``, or another project's unit.
    """

    machine: str
    family: str
    suite: str
    variant: str
    case: str
    l2: str
    quantity: str

    @property
    def ours(self) -> bool:
        """Whether a Lockstep suite measures the series. Other asv benchmarks have no cache state."""
        return bool(self.l2)

    @property
    def timed(self) -> bool:
        """Whether the quantity is a time or a ratio of times, so that worse means slower."""
        return self.quantity in (*TIMED, "seconds")

    @property
    def checked(self) -> bool:
        """Whether the quantity is a result of the correctness check, such as an error."""
        return self.ours and self.quantity in CHECKED

    @property
    def cost(self) -> str:
        """The cost besides latency and speedup that includes the quantity; "" if the quantity is not such a cost."""
        return cost_of(self.quantity) if self.ours else ""

    @property
    def exact(self) -> bool:
        """Whether the quantity is exact: it is found by compiling and not measured."""
        return not self.l2 and self.quantity in EXACT

    @property
    def foreign(self) -> bool:
        """Whether the series is of another project's asv benchmark, which has no cache state."""
        return not self.l2 and not self.exact

    @property
    def label(self) -> str:
        """Name of the series without machine, for people: ``linear.triton M=1,K=64 cold``."""
        head = f"{self.suite}.{self.variant}" if self.variant else self.suite
        named = self.checked or self.cost or self.exact
        quantity = self.quantity.replace("_", " ") if named else ""
        return " ".join(part for part in (head, self.case, self.l2, quantity) if part)

    @property
    def short_label(self) -> str:
        """The label beside the name of the family: without the family, with which another project's label begins."""
        return self.label.removeprefix(f"{self.family}.") if self.foreign else self.label
