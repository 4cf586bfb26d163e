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

from lockstep.gate.measuring.pairing import BASE, HEAD
from lockstep.gate.model import OUT_OF_TIME, SeriesKey, Verdict

#: Calls of each side after its first, until one differs.
CALLS = 8

#: If base or head first differs in its k-th call, the other must agree in ``MORE`` · k calls to count as better.
MORE = 200


def compare_bits(key: SeriesKey, base: Iterator[str], head: Iterator[str], deadline: float) -> Verdict:
    """Return the verdict on determinism.

    It is "slower" if only base is deterministic, "faster" if only head is, and "same" if both are or neither is. It is
    "unsure" if the time ends first. ``base`` and ``head`` yield how each further call differs from the first; "" for
    the same bits.
    """
    calls, number, how = {BASE: base, HEAD: head}, {BASE: 0, HEAD: 0}, {BASE: "", HEAD: ""}

    def repeat(side: str, most: int) -> None:
        """Call a side until a result differs from its first one, or until ``most`` calls agree with it."""
        while number[side] < most and not how[side]:
            if time.monotonic() >= deadline:
                raise TimeoutError
            how[side] = next(calls[side])
            number[side] += 1

    try:
        repeat(BASE, CALLS)
        repeat(HEAD, CALLS)
        for side, other in ((BASE, HEAD), (HEAD, BASE)):
            if how[other] and not how[side]:
                repeat(side, MORE * number[other])
    except TimeoutError:
        return Verdict(key, "unsure", f"{OUT_OF_TIME} after {sum(number.values())} calls")
    if how[HEAD] and not how[BASE]:
        steady = f"base gave the same bits in {1 + number[BASE]} calls"
        return Verdict(key, "slower", f"not deterministic any more: {how[HEAD]}; {steady}")
    if how[BASE] and not how[HEAD]:
        now = f"deterministic now: the same bits in {1 + number[HEAD]} calls; base: {how[BASE]}"
        return Verdict(key, "faster", now)
    return Verdict(key, "same")
