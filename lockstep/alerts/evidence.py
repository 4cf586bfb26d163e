"""One fact that supports a cause."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """A fact with its two values as text. ``before`` is "" if only ``after`` is meaningful."""

    what: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The fact in words, such as ``torch 2.11.0 → 2.13.0``."""
        return f"{self.what} {self.before} → {self.after}" if self.before else f"{self.what} {self.after}"
