"""Read from the text of a unit whether lower or higher numbers are better.

Only what a text says is taken: ``GB/s`` is a rate, ``ms/frame`` a time. For any other text the answer is "neither".
``docs/detection.md`` has a table of units with their answers.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lockstep.record.quantity import Better

_HIGHER = r"higher|bigger|larger|greater|more"
_LOWER = r"lower|smaller|less|fewer"
#: A direction in words: "higher is better", "lower=better", "the lower the better".
_STATED = re.compile(
    rf"\b(?:(?P<higher>{_HIGHER})|(?P<lower>{_LOWER}))\b\s*(?:is|=|are|the)?\s*(?:the\s+)?better\b|(?P<up>↑)|(?P<down>↓)"
)

_PREFIX = r"(?:[kmgtpeµμun]|kilo|mega|giga|tera|milli|micro|nano)?"
_TIME = re.compile(rf"(?:{_PREFIX}(?:s|secs?|seconds?)|ps|mins?|minutes?|h|hrs?|hours?|days?)")
#: Units of time in a denominator, which make a rate.
_PER_TIME = re.compile(r"(?:s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?)")
_BYTES = re.compile(r"(?:[kmgtp]?i?b|(?:kilo|mega|giga|tera|kibi|mebi|gibi|[kmgt])?bytes?)")
#: Rates in one word: FLOPS in all spellings, Hz, and operations, points or bits per second.
_RATE = re.compile(
    rf"{_PREFIX}(?:flop/?s|flopss|flops/s|hz|hertz|[mgt]?lups|iops|bps|bits?ps)"
    r"|(?:[kmgt]?(?:points?|pts|cells?|updates?)ss)|[fqtr]ps|[gt]ops|mips|tok(?:ens)?ps|[kmgt]?bit/s"
)
_GOOD = re.compile(r"\b(?:throughput|bandwidth|speedup|speed-up|accuracy)\b")
_BAD = re.compile(
    r"\b(?:errors?|latency|latencies|runtime|run time|time|duration|elapsed|overhead|loss|losses|memory|rmse|mae|mse)\b"
)
_COSTS = re.compile(r"(?:cycles?|clocks?|j|joules?|[mµu]j|kj|wh|kwh)")


@lru_cache(maxsize=4096)
def better_of(unit: str) -> Better:
    """Return the better direction that the text of a unit says; "neither" if it says none."""
    text = " ".join(unit.lower().split())
    stated = _STATED.search(text)
    if stated:
        return "higher" if stated["higher"] or stated["up"] else "lower"
    outside = " ".join(re.sub(r"[(\[{][^)\]}]*[)\]}]", " ", text).split())
    inside = re.findall(r"[(\[{]([^)\]}]*)[)\]}]", text)
    answers = (_of(part.strip()) for part in (outside, *inside))
    return next((answer for answer in answers if answer != "neither"), "neither")


def _of(text: str) -> Better:
    good, bad = _GOOD.search(text), _BAD.search(text)
    if good or bad:
        return "neither" if good and bad else "higher" if good else "lower"
    # "GB per second", "req s^-1" and "GB / s" are "GB/s".
    text = re.sub(r"\s*(?:/|\bper\b)\s*", "/", text)
    text = re.sub(r"[\s*·]*\b(s|sec)(?:\^?-1|⁻¹)$", r"/\1", text)
    if _RATE.fullmatch(text.partition("/")[0]) or _RATE.fullmatch(text):
        return "higher"
    numerator, *denominators = text.split("/")
    if any(_PER_TIME.fullmatch(part) for part in denominators):
        # "ns/day" is the rate of a simulation. "s/s" compares two times, and says nothing.
        same = _TIME.fullmatch(numerator) and not any(part.startswith("day") for part in denominators)
        return "neither" if same else "higher"
    if any(kind.fullmatch(numerator) for kind in (_TIME, _BYTES, _COSTS)):
        return "lower"
    return "neither"
