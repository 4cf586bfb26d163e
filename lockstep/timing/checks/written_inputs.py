"""Read the inputs that a suite lets its variants write (``Suite.inout``), before and after a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lockstep.suite.definition import Suite
from lockstep.suite.inputs import map_tensors, tensors_of
from lockstep.timing.checks.determinism import difference
from lockstep.timing.checks.output_memory import copy_of


def inout_of(suite: Suite, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the inputs ``inout``, by name; gaps in a tensor's memory are copied with it."""
    return {name: map_tensors(inputs[name], copy_of) for name in suite.inout}


def after_call(suite: Suite, inputs: Mapping[str, Any], result: Any) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
    """Return copies of the outputs of a call, and of what the call left in each input ``inout``, by name.

    The value is ``None`` for an input among the outputs. The outputs of a call that returns nothing are these inputs.
    """
    outputs = tensors_of(result) or tensors_of([inputs[name] for name in suite.inout])
    beside = not_returned(outputs, inputs, suite.inout)
    left = {name: value if name in beside else None for name, value in inout_of(suite, inputs).items()}
    return tuple(output.detach().clone() for output in outputs), left


def not_returned(outputs: Sequence[torch.Tensor], arguments: Mapping[str, Any], inout: Sequence[str]) -> list[str]:
    """Return the names of inputs ``inout`` that have a tensor which is not among a call's outputs."""
    returned = {_place(output) for output in outputs}
    return [name for name in inout if any(_place(tensor) not in returned for tensor in tensors_of(arguments.get(name)))]


def same_bits(one: Any, other: Any) -> bool:
    """Return whether the tensors of two values have the same bits."""
    return not difference(tensors_of(one), tensors_of(other))


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what two views of the same elements have in common: a slice of a tensor begins where the tensor does."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
