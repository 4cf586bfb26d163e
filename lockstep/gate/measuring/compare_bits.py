"""Judge whether a variant still gives the same bits in every call on the same inputs.

Two calls of a nondeterministic variant may agree by luck. So base and head are called several times. If only one of
them differs, the other must agree in many more calls before it counts as better. If base and head draw results from the
same distribution, a verdict "worse" (or "better") has a probability of at most 2 / (``MORE`` + 1), which is 1 %. Proof:
let m be the probability of the most likely result. The side that differs first does so in call k with probability
≤ 2 (1 − m) m^(k−1), and the other side agrees in ``MORE`` · k calls with probability ≤ m^(``MORE`` · k); sum over k.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lockstep.gate.measuring.pairing import BASE
from lockstep.gate.model import OUT_OF_TIME, SeriesKey, Verdict
from lockstep.timing.arms.shared_buffers import ArmFailed

#: Calls of each side after its first, until one differs.
CALLS = 8

#: If base or head first differs in its k-th call, the other must agree in ``MORE`` · k calls to count as better.
MORE = 200


@dataclass
class _Side:
    """The repeated calls of base or of head so far.

    Attributes:
        number: number of calls after the first one.
        how: how the last call differs, or "".
    """

    calls: Iterator[str]
    deadline: float
    number: int = 0
    how: str = ""

    def repeat(self, most: int) -> None:
        """Call the variant until a result differs from the first one, or until ``number`` has reached ``most``.

        Raises:
            TimeoutError: the time ``deadline`` has passed.
        """
        while self.number < most and not self.how:
            if time.monotonic() >= self.deadline:
                raise TimeoutError
            self.how = next(self.calls)
            self.number += 1


def compare_bits(key: SeriesKey, base: Iterator[str], head: Iterator[str], deadline: float) -> Verdict:
    """Return the verdict on determinism.

    It is "slower" if only base is deterministic, "faster" if only head is, and "same" if both are or neither is. It is
    "unsure" if the time ends first or base fails, "failed" if head fails, and "na" if the device has too little memory.

    Args:
        base, head: yield how each further call of base or of head differs from its first call; "" for the same bits.
        deadline: time on ``time.monotonic()``'s clock after which no call starts.
    """
    before, after = _Side(base, deadline), _Side(head, deadline)
    try:
        for side in (before, after):
            side.repeat(CALLS)
        for side, other in ((before, after), (after, before)):
            if other.how and not side.how:
                side.repeat(MORE * other.number)
    except TimeoutError:
        return Verdict(key, "unsure", f"{OUT_OF_TIME} after {before.number + after.number} calls")
    except torch.cuda.OutOfMemoryError:
        return Verdict(key, "na", "the device has too little memory to keep a result")
    except ArmFailed as failure:
        if failure.arm == BASE:
            return Verdict(key, "unsure", f"base fails in a repeated call: {failure}")
        return Verdict(key, "failed", f"in a repeated call: {failure}")
    if after.how and not before.how:
        steady = f"base gave the same bits in {1 + before.number} calls"
        return Verdict(key, "slower", f"not deterministic any more: {after.how}; {steady}")
    if before.how and not after.how:
        return Verdict(
            key, "faster", f"deterministic now: the same bits in {1 + after.number} calls; base: {before.how}"
        )
    return Verdict(key, "same")
