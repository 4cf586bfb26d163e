"""The few numbers that the detector stands on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How sure, how early, how patient.

    Attributes:
        prompt: commits within which ``Analysis.mde`` is to be reported.
    """

    prompt: int = 3
