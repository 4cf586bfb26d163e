"""Call base and head once each, and compare what the closures return. Base's output is the reference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lockstep.scripts.closure_arms import Namespace
from lockstep.scripts.shared_buffers import digest_of_inputs
from lockstep.scripts.timed_call import TimedCall
from lockstep.suite.inputs import tensors_of
from lockstep.timing.checks.accuracy import accuracy_of
from lockstep.timing.checks.check import brief
from lockstep.timing.checks.tolerance import default_tolerance, is_float, refusal

#: Seconds of the slowest call that is timed. An epoch has some twenty calls, and a worker that says nothing for two
#: minutes counts as hung.
MOST_CALL_S = 4.0

#: The seed of calls that draw numbers themselves, a gradient for example.
_SEED = 11


def first_output(call: TimedCall, namespace: Namespace) -> list[torch.Tensor]:
    """Call a closure once, which compiles and tunes; return copies of its tensors. Its errors are passed on."""
    torch.manual_seed(_SEED)
    with namespace(), call.state.entered():
        call.drop_gradients()
        result = call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        try:
            return [tensor.detach().clone() for tensor in tensors_of(result)]
        finally:
            call.drop_gradients()


def too_slow(call: TimedCall, namespace: Namespace, first_s: float) -> str:
    """Return why a call takes too long to be timed; "" if it does not.

    ``first_s``: seconds of the first call. If they were many, a second call says whether compiling took them.
    """
    if first_s <= MOST_CALL_S:
        return ""
    started = time.monotonic()
    first_output(call, namespace)
    seconds = time.monotonic() - started
    if seconds <= MOST_CALL_S:
        return ""
    return f"one call takes {seconds:.0f} s, and a number takes dozens of calls: choose a smaller case"


def compare_with_file(call: TimedCall, namespace: Namespace, file: Path) -> dict[str, Any]:
    """Call a closure once, and compare its outputs with those in a file; if there is none, write them.

    Returns:
        ``count`` of tensors, what is ``wrong`` or "", a digest of the ``inputs``, and the ``error`` of the closure or
        "".
    """
    inputs = digest_of_inputs(call.function)  # before a call that changes them
    try:
        outputs = first_output(call, namespace)
    except Exception as error:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # raises again where the context is broken, which ends this process
        return {"count": 0, "wrong": "", "inputs": inputs, "error": brief(error)}
    wrong = ""
    if file.exists():
        wrong = wrong_output(torch.load(file), outputs)
    else:
        torch.save(outputs, file)
    return {"count": len(outputs), "wrong": wrong, "inputs": inputs, "error": ""}


def wrong_output(base: Sequence[torch.Tensor], head: Sequence[torch.Tensor]) -> str:
    """Return what is wrong with head's output if base's is right; "" if nothing is."""
    if len(base) != len(head):
        return f"returned {len(head)} tensors, base returned {len(base)}"
    for number, (expected, output) in enumerate(zip(base, head, strict=True)):
        if expected.shape != output.shape:
            return f"output {number} has shape {list(output.shape)}, base's has {list(expected.shape)}"
        if expected.dtype == output.dtype and torch.equal(expected, output):
            continue
        tolerance = default_tolerance(expected.dtype, [expected.dtype]) if is_float(expected.dtype) else 0.0
        if found := refusal(accuracy_of(output, expected), expected.shape, tolerance):
            return f"output {number} {found} (base's output is the reference)"
    return ""
