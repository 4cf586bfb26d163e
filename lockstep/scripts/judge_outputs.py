"""Say what the outputs of base and head tell, without torch: the parent of two processes judges as one process does."""

from __future__ import annotations

from collections.abc import Callable


def judged(compared: bool, wrong: str, same_inputs: bool, changes: Callable[[], bool]) -> tuple[str, str]:
    """Return what is wrong with head's output, or "", and what a reader of a right one must know, or "".

    Args:
        compared: whether a call returned tensors.
        wrong: what is wrong with head's output if base's is right; "" if nothing is.
        same_inputs: whether base and head were called with the same values; otherwise the outputs say nothing.
        changes: calls base once more, and says whether its output changes from call to call.
    """
    if not compared:
        return "", "results not checked: the timed call returns nothing"
    if not wrong:
        return "", ""
    if not same_inputs:
        return "", "base and head drew other inputs, so the outputs were not compared"
    if changes():
        return "", "its output changes from call to call, so it was not compared"
    return wrong, ""
