"""Compare the time of a call on new values with the time of the same call repeated on the timed values.

Timing repeats calls on the values of one epoch. A variant that recognises its inputs or outputs can skip its work in
every timed call and still be right whenever results are compared. The variant's first call on new values takes longer.
An example is the fingerprint of flashinfer-ai/flashinfer-bench-starter-kit#21.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Number of trials that must show skipped work before an arm is refused, and number of other trials that clear the arm.
#: On two cores with three other busy processes, three out of three trials accused an honest variant in one record of
#: fifty.
TRIALS = 16
SPARED = 5

#: An honest rotation on new values may take this many times as long as a repeated rotation …
FACTOR = 3.0

#: … plus this many seconds, because the first call after other work is slower. Products of 4² to 1024² (1.1 µs to
#: 13 ms) on two cores: 16 of 3,690 rotations on new values took more than ``FACTOR`` times as long, 9 of them by less
#: than 20 µs, all by less than 41 µs. Beside busy processes 36 of 1,230 took up to 12 ms more: ``TRIALS`` is for those.
SLACK_S = 20e-6


@dataclass(frozen=True)
class Trial:
    """Seconds of one call on each argument set: ``fresh`` on new values, ``repeated`` on the timed values again."""

    fresh: float
    repeated: float

    @property
    def skips(self) -> bool:
        """Return whether calls on repeated values were so much faster than on fresh values that they skipped work."""
        return self.fresh > FACTOR * self.repeated + SLACK_S


def undecided(trials: Sequence[Trial]) -> bool:
    """Return whether further trials are needed to decide whether an arm skips work on values that it has seen."""
    skipping = sum(trial.skips for trial in trials)
    return skipping < TRIALS and len(trials) - skipping < SPARED


def skipped_work(trials: Sequence[Trial]) -> str:
    """Return how much longer an arm takes on new values, if ``TRIALS`` trials show that it skips work; "" if not."""
    skipping = [trial for trial in trials if trial.skips]
    if len(skipping) < TRIALS:
        return ""
    least = min(skipping, key=lambda trial: trial.fresh / trial.repeated)
    return (
        f"does less work on values that it has seen: {least.fresh * 1e6:.1f} µs on new values and "
        f"{least.repeated * 1e6:.1f} µs when the timed values are repeated; "
        f"this difference or a larger one in {len(skipping)} of {len(trials)} trials"
    )
