"""Compare the time of a call on new values with that of the same call repeated on the timed values.

Timing repeats calls on the values of an epoch. A variant that finds its inputs or outputs unchanged, or knows these
values, can leave out its work in every timed call and still be right whenever results are compared. Its first call on
new values takes longer. The fingerprint of flashinfer-ai/flashinfer-bench-starter-kit#21 is such a variant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Most trials of an arm. A variant is refused if all of them say so, and spared by the first that does not. On two
#: cores with three other busy processes, three trials accused an honest variant in one record of fifty.
TRIALS = 20

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


def skipped_work(trials: Sequence[Trial]) -> str:
    """Return how much longer new values take if every trial says so, or ""."""
    if not trials or not all(trial.skips for trial in trials):
        return ""
    least = min(trials, key=lambda trial: trial.fresh / trial.repeated)
    return (
        f"works less on values that it knows: {least.fresh * 1e6:.1f} µs on new values and "
        f"{least.repeated * 1e6:.1f} µs on the timed ones, repeated; so or more in each of {len(trials)} trials"
    )
