"""Compare the time of a call on new values with that of the same call repeated on the timed values.

Timing repeats calls on the values of an epoch. A variant that finds its inputs or outputs unchanged, or knows these
values, can leave out its work in every timed call and still be right whenever results are compared. Its first call on
new values takes longer. The fingerprint of flashinfer-ai/flashinfer-bench-starter-kit#21 is such a variant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Trials that must say that an arm skips work before it is refused, and trials that spare it by not saying so. On two
#: cores with three other busy processes, three out of three accused an honest variant in one record of fifty.
TRIALS = 16
SPARED = 5

#: A rotation on new values may take this many times as long as a repeated one …
FACTOR = 3.0

#: … and this many seconds longer: the first launch after other work is slower by some microseconds.
SLACK_S = 20e-6


@dataclass(frozen=True)
class Trial:
    """Seconds of one rotation: ``fresh`` on new values into outputs of NaN, ``repeated`` on the timed values again."""

    fresh: float
    repeated: float

    @property
    def skips(self) -> bool:
        """Return whether the repeated rotation left out work."""
        return self.fresh > FACTOR * self.repeated + SLACK_S


def undecided(trials: Sequence[Trial]) -> bool:
    """Return whether further trials are needed."""
    skipping = sum(trial.skips for trial in trials)
    return skipping < TRIALS and len(trials) - skipping < SPARED


def skipped_work(trials: Sequence[Trial]) -> str:
    """Return how much longer new values take if ``TRIALS`` of the trials say so, or ""."""
    skipping = [trial for trial in trials if trial.skips]
    if len(skipping) < TRIALS:
        return ""
    least = min(skipping, key=lambda trial: trial.fresh / trial.repeated)
    return (
        f"works less on values that it knows: {least.fresh * 1e6:.1f} µs on new values and "
        f"{least.repeated * 1e6:.1f} µs on the timed ones, "
        f"repeated; so or more in {len(skipping)} of {len(trials)} trials"
    )
