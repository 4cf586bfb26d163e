"""Decide a case from what one or two passes measured: epochs, or pairs of compilations."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, geometric_mean, stdev
from typing import Any

from lockstep.gate.model import MOVED, OUT_OF_TIME, UNREACHED, SeriesKey, Verdict
from lockstep.gate.sequential_decision import LOOKS, Decision, Test, excluded, found_twice, interval, relative

#: Measurements of a pass that may be voided because a control moved; later ones count even if a control moves.
MOST_VOID = LOOKS[0]

#: A bound (log units) above which nothing is said to be excluded.
_MOST_EXCLUDED = 1.0


@dataclass(frozen=True)
class Measured:
    """What one epoch, or one pair of compilations, measured.

    Attributes:
        base_s, head_s: seconds per call; for the energy the joules per call.
        shared: whether base and head used the same buffers throughout.
        pair: the timings behind the seconds (``lockstep.timing.clock_correction.Pair``); ``None`` if there are none.
    """

    base_s: float
    head_s: float
    shared: bool = True
    pair: Any = None


def log_ratios(measured: Sequence[Measured]) -> list[float]:
    """Return the log ratio head / base of each measurement."""
    return [math.log(one.head_s / one.base_s) for one in measured]


@dataclass
class Trial:
    """The measurements that have compared a case so far, in one or two passes.

    The second pass begins when the first finds a difference.

    Attributes:
        unit: what reasons call the measurements, such as "epochs".
        ratios_of: returns the log ratio head / base of each measurement of a pass.
        twins: whether base is compared with itself: an A/A comparison has one pass.
        refusal: the verdict on a case that cannot be compared.
    """

    test: Test
    unit: str = "epochs"
    ratios_of: Callable[[Sequence[Measured]], list[float]] = log_ratios
    twins: bool = False
    passes: list[list[Measured]] = field(default_factory=lambda: [[]])
    decisions: list[Decision] = field(default_factory=list)
    refusal: Verdict | None = None
    moved: int = 0
    voided: int = 0
    wall_s: float = 0.0
    #: Index of the epoch of the pass that is verified: before the first test, and a variant cannot foresee it.
    verified: int = field(default_factory=lambda: random.SystemRandom().randrange(LOOKS[0]))

    @property
    def count(self) -> int:
        """Return the number of measurements of the present pass."""
        return len(self.passes[-1])

    @property
    def ratios(self) -> list[float]:
        """Return the log ratios of the present pass."""
        return self.ratios_of(self.passes[-1])

    @property
    def over(self) -> bool:
        """Return whether the case is decided, refused or undecidable, so that further measurements are of no use."""
        decided = len(self.decisions) == len(self.passes)
        undecidable = self.count >= LOOKS[-1] or (self.count in LOOKS and self.test.hopeless(self.ratios))
        return self.refusal is not None or decided or undecidable

    @property
    def looks_slower(self) -> bool:
        """Return whether the first pass found a slowdown, or has a mean ratio that would count as one."""
        if self.decisions:
            return self.decisions[0] == "slower"
        return self.count > 0 and fmean(self.ratios) > math.log1p(self.test.min_effect)

    def add(self, measured: Measured, moved: str = "") -> None:
        """Add a measurement. If it ends the first pass with a difference, begin the second pass.

        A limited number of measurements is voided where a control ``moved``. A machine that never settles is measured
        too, and marked.
        """
        self.moved += bool(moved)
        if moved and self.voided < MOST_VOID * len(self.passes):
            self.voided += 1
            return
        self.passes[-1].append(measured)
        if self.count in LOOKS and (decision := self.test.decide(self.ratios)) is not None:
            self.decisions.append(decision)
            if decision != "same" and len(self.passes) == 1 and not self.twins:
                self.passes.append([])
                self.verified = random.SystemRandom().randrange(LOOKS[0])

    def excluded(self, scatter: float = math.inf) -> float:
        """Return the share by which head cannot be slower, judging by the last pass with a measurement.

        ``scatter``: standard deviation of log ratios in other cases, used while the pass has too few of its own.
        """
        ratios = self.ratios_of(self.passes[-1] or self.passes[0])
        bound = excluded(ratios, self.test.alpha, scatter) if ratios else math.inf
        return math.expm1(bound) if bound < _MOST_EXCLUDED else math.inf

    def verdict(self, key: SeriesKey, scatter: float = math.inf) -> Verdict:
        """Return the verdict on the case. ``scatter``: see ``excluded``."""
        every = [one for each in self.passes for one in each]
        verdict = Verdict(
            key,
            "unsure",
            min_effect=self.test.min_effect,
            epochs=len(every),
            moved=self.moved,
            voided=self.voided,
            shared=all(one.shared for one in every),
            wall_s=self.wall_s,
        )
        if self.refusal is not None:
            return replace(
                verdict, outcome=self.refusal.outcome, reason=self.refusal.reason, in_base=self.refusal.in_base
            )
        bound = self.excluded(scatter)
        return replace(self._decided(verdict), excluded=bound if math.isfinite(bound) else None)

    def _decided(self, verdict: Verdict) -> Verdict:
        """Return the verdict with outcome, reason and numbers.

        The numbers come from the second pass once it has been tested. A case gets a second pass only if its first pass
        showed a difference, so the first pass overstates the difference.
        """
        first, *more = [self.ratios_of(measured) for measured in self.passes]
        shown, measured = (more[0], self.passes[1]) if more and len(more[0]) >= LOOKS[0] else (first, self.passes[0])
        if not shown:
            return replace(verdict, reason=MOVED if self.moved else UNREACHED)
        verdict = replace(
            verdict,
            change=relative(interval(shown, self.test.alpha)),
            # The geometric mean, as for the change. An arithmetic mean follows the slowest epoch and contradicts the
            # change.
            base_s=geometric_mean(one.base_s for one in measured),
            head_s=geometric_mean(one.head_s for one in measured),
        )
        decision = self.decisions[0] if self.decisions else None
        if not more:
            if decision is None:
                return replace(verdict, reason=self._undecided(first))
            if decision == "same":
                return replace(verdict, outcome="same", min_effect=self.test.same_bound)
            return replace(verdict, outcome=decision, reason="one pass")  # an A/A comparison
        second = self.decisions[1] if len(self.decisions) > 1 else None
        if second is not None and second == decision:
            twice = relative(found_twice(first, more[0], self.test))
            return replace(verdict, outcome=decision, confirmed=True, change=twice)
        first_change = f"{math.expm1(fmean(first)):+.2%} in a first pass"
        if second == "same":
            reason = f"{first_change}, not in the second"
            return replace(verdict, outcome="same", min_effect=self.test.same_bound, reason=reason)
        if second is not None:
            return replace(verdict, reason=f"{first_change}, {math.expm1(fmean(more[0])):+.2%} in the second")
        return replace(verdict, reason=f"{first_change}, not confirmed by a second: {self._undecided(more[0])}")

    def _undecided(self, ratios: Sequence[float]) -> str:
        count = len(ratios)
        if not count:
            return MOVED if self.moved else UNREACHED
        if self.test.hopeless(ratios):
            return f"too noisy at present, for any budget: {stdev(ratios):.1%} between {count} {self.unit}"
        if count >= LOOKS[-1]:
            return f"too close to call after {count} {self.unit}"
        return f"{OUT_OF_TIME} after {count} {self.unit if count > 1 else self.unit.removesuffix('s')}"
