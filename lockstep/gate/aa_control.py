"""The A/A control: compare unchanged code with itself, and derive the smallest change that counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from lockstep.gate.model import SeriesKey, Verdict
from lockstep.gate.report.report import percent
from lockstep.gate.sequential_decision import furthest


@dataclass(frozen=True)
class AAControl:
    """The differences measured between two copies of unchanged code. They show the machine's noise.

    ``on_cpu``: whether the cases ran on a CPU. A CPU's noise changes from case to case, so each case has its own limit.
    """

    verdicts: tuple[Verdict, ...] = ()
    on_cpu: bool = False

    @cached_property
    def _apart(self) -> dict[SeriesKey, tuple[float, bool]]:
        """Return for each case the share by which unchanged code may differ, and whether an interval ends there."""
        return {
            verdict.key: furthest(verdict.change)
            for verdict in self.verdicts
            if verdict.change is not None and (self.on_cpu or verdict.outcome in ("slower", "faster"))
        }

    def least(self, key: SeriesKey, requested: float) -> float:
        """Return the smallest change of a case that counts: ``requested``, or more if the noise requires it."""
        differences = (apart for series, (apart, _) in self._apart.items() if series.quantity == key.quantity)
        worst = max(differences, default=0.0)
        share = self._apart.get(key, (worst, True))[0] if self.on_cpu else worst
        return max(requested, share)

    def note(self, requested: Callable[[SeriesKey], float]) -> str:
        """Return a note if unchanged code may differ by more than the smallest change that was requested, else ""."""
        key = max(self._apart, key=lambda series: self._apart[series][0], default=None)
        if key is None or self._apart[key][0] <= requested(key):
            return ""
        apart, ends = self._apart[key]
        return f"unchanged code may differ by {percent(apart)}{'' if ends else ' or more'} here ({key})"
