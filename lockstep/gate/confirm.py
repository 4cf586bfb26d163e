"""Confirm the proofs of a run by a sample of the proved cases, on the GPU at hand.

If the sample does not confirm the proofs, the run measures every case.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from lockstep.gate.launches import Observation, contradiction
from lockstep.gate.plan import sample
from lockstep.gate.proof import Proof
from lockstep.gate.verdict import SeriesKey

#: Runs a case on base and on head; the second argument asks for torch's operators as well.
Observe = Callable[[SeriesKey, bool], tuple[Observation, Observation]]


def confirm(
    proof: Proof,
    proved: Sequence[SeriesKey],
    callable_here: Sequence[SeriesKey],
    observe: Observe,
    chance: random.Random,
    until: float,
) -> tuple[Proof, str]:
    """Call a sample of the proved cases on both sides and compare what they launch.

    Args:
        proof: what to confirm.
        proved: its cases, at least one.
        callable_here: those of them that one process holds on both sides.
        observe: runs a case.
        chance: picks the sample.
        until: on ``time.monotonic()``'s clock; no further case is called after it.

    Returns:
        The proof, or one that proves nothing if a case contradicts it, a case cannot be called, or no case was
        called; and a note for the report.
    """
    checked = 0
    for key in sample(callable_here, lambda key: proof.traced(key) is not None, chance):
        if time.monotonic() >= until:
            break
        traced = proof.traced(key)
        base, head = observe(key, traced is not None)
        case = f"{key.suite} {key.variant} {key.case}"
        if found := contradiction(base, head, traced or (None, None)):
            return _void(proof, f"a proof was wrong: {case}: {found}", found)
        if base.error and not base.refused:
            reason = f"{case} could not be called: {base.error}"
            return _void(proof, f"the proofs could not be checked on this GPU: {reason}", reason)
        checked += 1
    if not checked:
        reason = "no proved case was called"
        return _void(proof, f"the proofs could not be checked on this GPU: {reason}", reason)
    return proof, f"proofs checked on this GPU: {checked} of {len(proved)} proved cases called, all launch the same"


def _void(proof: Proof, note: str, reason: str) -> tuple[Proof, str]:
    return replace(proof, contradicted=reason), f"{note}; so no case counts as proved in this run, and all are measured"
