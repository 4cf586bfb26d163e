"""Call base and head once each from equal state, and compare what the calls gave. Base's output is the reference.

A call gives the tensors that it returns, and those of the script's variables that it changes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from lockstep.scripts.closure_arms import Namespace
from lockstep.scripts.closure_state import ClosureState, differing, is_variable
from lockstep.scripts.taken_calls import line_of
from lockstep.scripts.timed_call import TimedCall
from lockstep.suite.inputs import tensors_of
from lockstep.timing.checks.accuracy import accuracy_of
from lockstep.timing.checks.tolerance import default_tolerance, is_float, refusal

#: Seconds of the slowest call that is timed. An epoch has some twenty calls, and a worker that says nothing for two
#: minutes counts as hung.
MOST_CALL_S = 4.0

#: The seed of calls that draw numbers themselves, a gradient for example.
_SEED = 11


@dataclass(frozen=True)
class Output:
    """What one call gave.

    Attributes:
        inputs: a digest of each tensor of the closure before the call, by path.
        returned: copies of the returned tensors.
        places: for each of them its path if it is a tensor of the closure, else "".
        changed: the variables of the script, and returned tensors of the closure, that the call changed: the values
            after it, and where it changed them.
    """

    inputs: Mapping[str, str]
    returned: Sequence[torch.Tensor]
    places: Sequence[str]
    changed: Mapping[str, tuple[torch.Tensor, torch.Tensor]]


def first_output(call: TimedCall, namespace: Namespace) -> Any:
    """Call a closure once, which compiles and tunes; return what it returns. Its errors are passed on."""
    torch.manual_seed(_SEED)
    with namespace(), call.state.entered():
        call.drop_gradients()
        try:
            result = call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            return result
        finally:
            call.drop_gradients()


def output_of(call: TimedCall, namespace: Namespace, state: ClosureState) -> Output:
    """Call a closure once, and return what the call gave. Its errors are passed on.

    ``state``: the closure's state before. The caller puts it back.
    """
    returned = tensors_of(first_output(call, namespace))
    own = {(tensor.data_ptr(), tensor.shape, tensor.dtype): path for path, tensor in state.tensors.items()}
    places = [own.get((tensor.data_ptr(), tensor.shape, tensor.dtype), "") for tensor in returned]
    masks = {path: mask for path, mask in state.changed().items() if is_variable(path) or path in places}
    changed = {path: (state.tensors[path].detach().clone(), mask) for path, mask in masks.items()}
    return Output(state.digests, [tensor.detach().clone() for tensor in returned], places, changed)


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


@dataclass(frozen=True)
class Compared:
    """A call's output beside base's.

    Attributes:
        given: whether one of the calls gave anything to compare.
        wrong: what is wrong with the output if base's is right; "" if nothing is.
        differing: paths whose tensors differed before the calls.
        error: why the call failed; "" if it did not.
    """

    given: bool = False
    wrong: str = ""
    differing: tuple[str, ...] = ()
    error: str = ""


def compared(base: Output, head: Output, state: ClosureState, scratch: Collection[str] = ()) -> Compared:
    """Compare two outputs.

    Args:
        state: the closure's state before the call that gave ``head``.
        scratch: names of variables whose contents are no result.
    """
    unequal = differing(base.inputs, head.inputs)
    wrong = _wrong_returns(base, head)
    for path in sorted({*base.changed, *head.changed}):
        name, before = path[1:].replace("@", ""), state.before.get(path)
        if wrong or before is None or name in scratch or (path in unequal and path not in base.changed):
            continue
        unchanged = before, torch.zeros_like(before, dtype=torch.bool)
        (expected, by_base), (output, by_head) = (of.changed.get(path, unchanged) for of in (base, head))
        if expected.shape != output.shape or expected.dtype != output.dtype:
            continue  # the versions have other variables
        # What neither call wrote is no result: an output may be longer than what is written to it.
        either = by_base | by_head
        found = _wrong(f"`{name}` after the call", _only(expected, either), _only(output, either), expected.dtype)
        wrong = f"{found}; if it is no result: --scratch {name}" if found else ""
    given = any((base.returned, base.changed, head.returned, head.changed))
    return Compared(given, wrong, tuple(sorted(unequal)))


def _wrong_returns(base: Output, head: Output) -> str:
    """Return what is wrong with what head returned; a tensor of the closure is compared where it was changed."""
    if len(base.returned) != len(head.returned):
        return f"returned {len(head.returned)} tensors, base returned {len(base.returned)}"
    for number, (expected, output) in enumerate(zip(base.returned, head.returned, strict=True)):
        apart = not base.places[number] or base.places[number] != head.places[number]
        if apart and (wrong := _wrong_tensor(number, expected, output)):
            return wrong
    return ""


def compare_with_file(
    call: TimedCall, namespace: Namespace, file: Path, keep: Collection[str] = (), scratch: Collection[str] = ()
) -> dict[str, Any]:
    """Call a closure once, and compare its output with that in a file; if there is none, write it.

    Args:
        keep: paths of tensors that hold what an earlier call left in them: the closure is called once before.

    Returns:
        The fields of ``Compared``, and ``changed``: the paths that the call changed.
    """
    state = ClosureState.of(call.function)
    try:
        if keep:
            first_output(call, namespace)
            state.restore(but={*keep})
        output = output_of(call, namespace, state)
    except Exception as error:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # raises again where the context is broken, which ends this process
        return {**asdict(Compared(error=line_of(error, Path(call.place[0])))), "changed": []}
    finally:
        state.restore()
    if file.exists():
        base = Output(**torch.load(file, weights_only=True))
    else:
        base = output
        torch.save(vars(base), file)
    return {**asdict(compared(base, output, state, scratch)), "changed": sorted(output.changed)}


def wrong_output(base: Sequence[torch.Tensor], head: Sequence[torch.Tensor]) -> str:
    """Return what is wrong with the tensors that head returned if base's are right; "" if nothing is."""
    nowhere = [""] * len(base), [""] * len(head)
    return _wrong_returns(Output({}, base, nowhere[0], {}), Output({}, head, nowhere[1], {}))


def _wrong_tensor(number: int, expected: torch.Tensor, output: torch.Tensor) -> str:
    if expected.shape != output.shape:
        return f"output {number} has shape {list(output.shape)}, base's has {list(expected.shape)}"
    if expected.dtype == output.dtype and torch.equal(expected, output):
        return ""
    return _wrong(f"output {number}", expected, output, expected.dtype)


def _wrong(name: str, expected: torch.Tensor, output: torch.Tensor, dtype: torch.dtype) -> str:
    tolerance = default_tolerance(dtype, [dtype]) if is_float(dtype) else 0.0
    found = refusal(accuracy_of(output, expected), expected.shape, tolerance)
    return f"{name} {found} (base's output is the reference)" if found else ""


def _only(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the values where the mask is true, else zeros; small floats as float32, which torch can select."""
    if values.is_floating_point() and values.dtype != torch.float64:
        values = values.float()
    return torch.where(mask, values, torch.zeros_like(values))
