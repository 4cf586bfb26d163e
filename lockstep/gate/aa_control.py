"""The A/A control: unchanged code compared with itself, and what counts as a change after that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from lockstep.gate.report.model import percent
from lockstep.gate.sequential import furthest
from lockstep.gate.verdict import SeriesKey, Verdict

#: Largest difference that a note states, as a share: few scattered epochs have an interval with an absurd end.
_MOST = 5.0


@dataclass(frozen=True)
class AAControl:
    """What was found between two copies of unchanged code; that is noise.

    Attributes:
        verdicts: of the cases that were compared with themselves.
        on_cpu: a CPU's noise changes from case to case, so each case is judged by its own, however small.
    """

    verdicts: tuple[Verdict, ...] = ()
    on_cpu: bool = False

    @cached_property
    def _apart(self) -> dict[SeriesKey, tuple[float, bool]]:
        """How far unchanged code may differ by case, as a share, and whether the interval ends there."""
        return {
            one.key: furthest(one.change)
            for one in self.verdicts
            if one.change is not None and (self.on_cpu or one.outcome in ("slower", "faster"))
        }

    def least(self, key: SeriesKey, asked: float) -> float:
        """Return the smallest change of a case that counts, as a share: what is asked for, or more."""
        worst = max((apart for apart, _ in self._apart.values()), default=0.0)
        own = self._apart.get(key, (worst, True))[0] if self.on_cpu else worst
        return max(asked, own)

    def note(self, asked: Callable[[SeriesKey], float]) -> str:
        """Return what a reader must know of the noise, or ""; ``asked`` is the change that should count by case."""
        key = max(self._apart, key=lambda one: self._apart[one][0], default=None)
        if key is None or self._apart[key][0] <= asked(key):
            return ""
        apart, ends = self._apart[key]
        if apart > _MOST:
            apart, ends = _MOST, False
        return f"unchanged code may differ by {percent(apart)}{'' if ends else ' or more'} here ({key})"
