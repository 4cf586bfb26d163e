"""Say what one call of base and head tells, without torch: the parent of two processes judges as one process does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.gate.model import SeriesKey, Verdict
from lockstep.scripts.plan import BASE, HEAD


def refused(key: SeriesKey, errors: Mapping[str, str]) -> Verdict:
    """Return the verdict on a call that a version cannot run; ``errors`` say why, by side."""
    if any("OutOfMemoryError" in error for error in errors.values()):  # alone a version may have memory enough
        return Verdict(key, "unsure", "the device has too little memory for the calls of both versions")
    if HEAD in errors:
        return Verdict(key, "failed", errors[HEAD], in_base=BASE in errors)
    return Verdict(key, "new", f"nothing to compare with, base failed: {errors[BASE]}")


def judged(
    key: SeriesKey, given: bool, wrong: str, other_inputs: bool, changes: Callable[[], bool]
) -> tuple[Verdict | None, str]:
    """Return the verdict on a wrong output of head, or ``None``, and what a reader of a right one must know, or "".

    Args:
        given: whether a call returned tensors or changed the script's.
        wrong: what is wrong with head's output if base's is right; "" if nothing is.
        other_inputs: whether head was called with a tensor of other values than base, which base does not write.
        changes: calls base once more from equal state, and says whether its output changes from call to call.
    """
    if not given:
        return None, "results not checked: the timed call returns no tensor and changes none of the script"
    if not wrong:
        return None, ""
    if other_inputs:
        return None, "results not compared: base and head drew other inputs"
    if changes():
        return None, "results not compared: base's own output changes from call to call"
    return Verdict(key, "failed", f"wrong: {wrong}"), ""
