"""Say what one call of base and head tells, without torch: the parent of two processes judges as one process does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from lockstep.gate.model import UNCHECKED, SeriesKey, Verdict
from lockstep.scripts.plan import BASE, HEAD


def refused(key: SeriesKey, errors: Mapping[str, str]) -> Verdict:
    """Return the verdict on a call that a version cannot run; ``errors`` say why, by side."""
    if any("OutOfMemoryError" in error for error in errors.values()):  # alone a version may have memory enough
        return Verdict(key, "unsure", "the device has too little memory for the calls of both versions")
    if HEAD in errors:
        return Verdict(key, "failed", errors[HEAD], in_base=BASE in errors)
    return Verdict(key, "new", f"nothing to compare with, base failed: {errors[BASE]}")


def judged(
    key: SeriesKey, given: bool, wrong: str, unequal: set[str], changed: Collection[str], changes: Callable[[], bool]
) -> tuple[Verdict | None, str]:
    """Return the verdict on a wrong output of head, or ``None``, and what a reader of a right one must know, or "".

    Args:
        given: whether a call returned tensors or changed the script's.
        wrong: what is wrong with head's output if base's is right; "" if nothing is.
        unequal: tensors that had other values in head than in base before the calls.
        changed: tensors that base's call changed. If these are all that were unequal, they may hold results alone.
        changes: calls base once more, and says whether its output changes. Before, all tensors get the values that they
            had, but those that were unequal keep what the first call left in them.
    """
    if not given:
        return None, f"{UNCHECKED}compared: the timed call returns no tensor and changes none of the script"
    if not wrong:
        return None, ""
    if not unequal.issubset(changed) or changes():
        why = "base and head drew other inputs" if unequal else "base's own output changes from call to call"
        return None, f"{UNCHECKED}compared: {why}"
    return Verdict(key, "failed", f"wrong: {wrong}"), ""
