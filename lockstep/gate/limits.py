"""Thresholds and limits of a run of the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.suite.thresholds import Thresholds


@dataclass(frozen=True)
class Terms:
    """What counts as a change in one run of the gate, and how long the run may take.

    Attributes:
        thresholds: content of thresholds.toml.
        min_effect: smallest change that counts, for every case; ``None`` to use the thresholds.
        deadline: time on ``time.monotonic()``'s clock after which no further epoch starts.
        silence_s: seconds without an event after which a worker is killed.
        about: commits, subjects and "#123", by which an accepted slowdown is recognised.
        costs: costs to judge besides the latency, by suite.
    """

    thresholds: Thresholds
    min_effect: float | None
    deadline: float
    silence_s: float
    about: Sequence[str] = ()
    costs: Mapping[str, Sequence[str]] = field(default_factory=dict)
