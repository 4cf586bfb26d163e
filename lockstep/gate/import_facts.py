"""Hold what the imports of base and head gave: variants, missing modules, errors, and suites that collide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.gate.model import SeriesKey, SideFacts, Verdict
from lockstep.gate.unchanged import Unchanged


@dataclass(frozen=True)
class Conflict:
    """A suite that one process cannot import from both versions, for example because an extension registers operators.

    Attributes:
        head: the result of the import in a process that imports only head.
        error: why head cannot be imported together with base.
    """

    head: SideFacts
    error: str

    @property
    def reason(self) -> str:
        """Return why the cases of a suite with this conflict have no verdict but "unsure"."""
        return f"one process cannot hold both versions ({self.error})"


@dataclass(frozen=True)
class Imports:
    """The results of importing each suite's variants from base and from head.

    Attributes:
        sides: the result by suite and side ("base" or "head").
        skipped: how an import hung or killed its worker, by "suite@side".
        conflicts: the suites whose head can be imported only without base.
    """

    sides: Mapping[str, Mapping[str, SideFacts]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    conflicts: Mapping[str, Conflict] = field(default_factory=dict)

    @property
    def absent(self) -> tuple[str, ...]:
        """Return the requested suites that cannot be judged, because neither version has their family."""
        return tuple(
            name
            for name, sides in self.sides.items()
            if len(sides) == 2 and all(side.missing for side in sides.values())
        )

    def of(self, key: SeriesKey, side: str) -> SideFacts | None:
        """Return the result of importing one side of a case's suite; head's in a process with or without base."""
        conflict = self.conflicts.get(key.suite)
        return conflict.head if conflict and side == "head" else self.sides.get(key.suite, {}).get(side)

    def on_both_sides(self, key: SeriesKey) -> bool:
        """Return whether one process imported the case's variant from base and from head."""
        return key.suite not in self.conflicts and all(
            key.variant in (self.of(key, side) or SideFacts()).variants for side in ("base", "head")
        )

    def place(self, key: SeriesKey) -> tuple[str, int]:
        """Return file and line of the case's variant in head; ("", 0) if unknown."""
        head = self.of(key, "head")
        return head.variants.get(key.variant, ("", 0)) if head else ("", 0)

    def verdict(self, key: SeriesKey, unchanged: Unchanged) -> Verdict | None:
        """Return a verdict that needs no measurement (a failed import, a missing variant, no change), or ``None``."""
        errors = {side: self.error(key, side) for side in ("base", "head")}
        if errors["head"]:
            return Verdict(key, "failed", errors["head"], in_base=bool(errors["base"]))
        head = self.of(key, "head")
        if head is None or key.variant not in head.variants:
            return Verdict(key, "removed", "head has no such variant")
        if unchanged.same(key) and not errors["base"]:
            return self.unchanged(key, unchanged)
        if key.suite in self.conflicts:
            return Verdict(key, "unsure", self.conflicts[key.suite].reason, code=unchanged.reasons(key))
        return None

    def unchanged(self, key: SeriesKey, unchanged: Unchanged) -> Verdict:
        """Return the verdict on a case that the change does not affect."""
        (file, line), seen = self.place(key), unchanged.seen(key)
        if seen is not None and seen.refusal:
            return Verdict(key, "na", seen.refusal, unchanged=True, file=file, line=line)
        return Verdict(key, "same", unchanged.why(key), unchanged=True, file=file, line=line)

    def error(self, key: SeriesKey, side: str) -> str:
        """Return why the import of one side of a case's suite failed; "" if it did not."""
        facts = self.of(key, side)
        how = self.skipped.get(f"{key.suite}@{side}", "")
        return f"import of {key.suite}: {how}" if how else facts.error if facts else ""
