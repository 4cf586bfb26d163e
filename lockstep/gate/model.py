"""Define the gate's requests and verdicts as data; ``lockstep.gate.case_verdict`` decides them.

The parent process imports this module, so it must not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from lockstep.gate.sequential_decision import Test
from lockstep.record.model import Estimate

#: ``na``: neither side runs the case on this machine, so it was not compared.
Outcome = Literal["same", "faster", "slower", "unsure", "failed", "new", "removed", "na"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

#: The quantity that every case has.
LATENCY = "latency"

#: Whether calls on the same inputs give the same bits; "slower" means that they do not any more.
DETERMINISTIC = "deterministic"

#: ``‖out − ref‖ / ‖ref‖``, the worst over the outputs; "slower" means that it is larger.
ERROR = "error"

#: Quantities that calls on drawn inputs decide: no epochs, and equal verdicts for cold and warm L2.
CHECKS = (DETERMINISTIC, ERROR)

#: Time to compile the kernels, with an empty cache.
COMPILE = "compile"

#: Quantities of a call that the gate judges besides the latency if ``--costs`` lists them.
COSTS = ("host", "behind", "energy", *CHECKS, COMPILE)

#: Name, format, factor and unit of the numbers of measured costs in reports.
_NUMBERS = {
    "host": ("host time", ".2f", 1e6, " µs"),
    "behind": ("time behind a kernel", ".2f", 1e6, " µs"),
    "energy": ("energy", ".2f", 1e3, " mJ"),
    ERROR: ("error", ".2e", 1.0, ""),
    COMPILE: ("compile time", ".2f", 1e3, " ms"),
}

#: Names of outcomes of quantities that are not times, in reports.
_WORDS = {
    "energy": {"slower": "more", "faster": "less"},
    DETERMINISTIC: {"slower": "worse", "faster": "better"},
    ERROR: {"slower": "larger", "faster": "smaller"},
}

#: Reason of an unsure case that was never started.
UNREACHED = "the budget did not reach it"

#: Begins the part of a reason that says why results were not compared.
UNCHECKED = "results not "

#: Reason of an unsure case that was started but had too few epochs.
OUT_OF_TIME = "out of time"

#: Reason of an unsure case whose time ended while epochs were still voided; further epochs would have counted.
MOVED = "controls moved in every epoch"


_RELEASE = re.compile(r"[A-Za-z0-9][\w.-]*==\d[\w.!+-]*")


def is_release(version: str) -> bool:
    """Return whether the name of a version is a release of a package, ``liger-kernel==0.6.2``, and not a commit."""
    return _RELEASE.fullmatch(version) is not None


@dataclass(frozen=True, order=True)
class SeriesKey:
    """One quantity of a variant at one case and cache state: the subject of a verdict.

    The quantity is "latency" or one of ``COSTS``.
    """

    suite: str
    variant: str
    case: str
    l2: str
    quantity: str = LATENCY

    def __str__(self) -> str:
        cost = "" if self.quantity == LATENCY else f" {self.quantity}"
        return f"{self.suite} {self.variant} {self.case} {self.l2}{cost}"


@dataclass(frozen=True)
class Verdict:
    """The gate's result for one quantity of one case.

    Attributes:
        outcome: one of ``OUTCOMES``.
        reason: explanation of an outcome that the numbers do not explain.
        change: head's number over base's, minus 1, with its interval: 0.01 is 1 % slower. ``None`` if not timed.
        min_effect: changes up to this share do not count; the requested share, or more if the noise requires it.
        base_s, head_s: seconds per call (joules for the energy, a share for the error), means over the epochs behind
            ``change``. Their ratio differs from ``change`` by the clocks' effect: ``change`` is normalised to a common
            clock.
        epochs: number of epochs, each with fresh buffers, in both passes together; for compile times, of pairs.
        confirmed: whether a second pass on other buffers found the difference again.
        moved: number of epochs in which a control's time changed, including voided epochs.
        voided: number of epochs discarded because a control's time changed; ``epochs`` does not count them.
        shared: whether base and head used the same buffers.
        unchanged: whether the change does not affect the case: equal sources, or the same work on the GPU. If
            ``change`` is set, the case was measured nevertheless. If the outcome is "na", it could not be measured.
        in_base: whether a failed case fails in base as well, so that the change did not break it; whether a new case
            is new only because base cannot be imported.
        code: a sentence for each difference of the machine code, and of the choices of tuners.
        accepted: the reason from thresholds.toml if the slowdown is accepted.
        file, line: file and line of the variant's function in head, relative to the tree; line 0 if unknown.
        excluded: the share by which head cannot be slower, with the confidence of the case; ``None`` if none is known.
    """

    key: SeriesKey
    outcome: Outcome
    reason: str = ""
    change: Estimate | None = None
    min_effect: float = 0.0
    base_s: float | None = None
    head_s: float | None = None
    epochs: int = 0
    confirmed: bool = False
    moved: int = 0
    voided: int = 0
    shared: bool = True
    unchanged: bool = False
    in_base: bool = False
    code: tuple[str, ...] = ()
    accepted: str = ""
    file: str = ""
    line: int = 0
    wall_s: float = 0.0
    excluded: float | None = None

    @property
    def label(self) -> str:
        """Return the outcome as reports write it, in the quantity's words: "larger" for an error that is "slower"."""
        if self.outcome == "na":
            return "n/a"
        return _WORDS.get(self.key.quantity, {}).get(self.outcome, self.outcome)

    @property
    def of_cost(self) -> str:
        """Return the numbers of a cost as text, ``host time 12.00 → 19.00 µs``; "" for other quantities."""
        name, spelled, factor, unit = _NUMBERS.get(self.key.quantity, ("", "", 1.0, ""))
        if not name or self.base_s is None or self.head_s is None:
            return name
        return f"{name} {self.base_s * factor:{spelled}} → {self.head_s * factor:{spelled}}{unit}"

    @property
    def in_us(self) -> bool:
        """Return whether reports show the numbers in their columns of µs; ``of_cost`` shows numbers in other units."""
        return self.key.quantity not in ("energy", ERROR, COMPILE)

    @property
    def looks_slower(self) -> bool:
        """Return whether the whole interval of an unsure case lies above ``min_effect``: one pass found a slowdown."""
        return self.outcome == "unsure" and self.change is not None and self.change.low > self.min_effect

    @property
    def blocks(self) -> bool:
        """Return whether this verdict must stop the change from being merged."""
        return (self.outcome == "slower" and not self.accepted) or (self.outcome == "failed" and not self.in_base)


@dataclass(frozen=True)
class Group:
    """Cases that share buffers: one quantity of some variants of one suite at one shape and cache state."""

    suite: str
    case: str
    l2: str
    variants: tuple[str, ...]
    quantity: str = LATENCY

    def cases(self) -> tuple[SeriesKey, ...]:
        """Return the series key of each variant of the group."""
        return tuple(SeriesKey(self.suite, variant, self.case, self.l2, self.quantity) for variant in self.variants)


@dataclass(frozen=True)
class GroupRequest:
    """A request to the worker to judge one group.

    Attributes:
        tests: the test that decides the case of each variant.
        twins: whether to compare base with itself, to measure the machine's noise.
    """

    group: Group
    tests: Mapping[str, Test]
    twins: bool = False


@dataclass(frozen=True)
class SideFacts:
    """The result of importing the variants of one suite from base or from head, in a worker.

    Attributes:
        variants: file (relative to the tree) and line of each variant's function, by the variant's name.
        missing: whether the tree lacks the package or module.
        error: why the module cannot be imported, else "".
    """

    variants: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    missing: bool = False
    error: str = ""
