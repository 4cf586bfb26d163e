"""Let the output of the baseline stand in for the reference of a suite that has none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.evaluate import bind, buffers_of
from lockstep.suite.inputs import Draw, map_tensors, tensors_of
from lockstep.suite.variants import Family, takes_out
from lockstep.timing.checks.check import brief, without_gpu


def take_as_standard(
    suite: Suite, family: Family, active: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> None:
    """Take the output of a family's baseline as the reference of the suite, if the suite has none."""
    function = family.variants.get(suite.baseline)
    if suite.has_reference or function is None:
        return

    def standard(case: Case, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        copies = map_tensors(inputs, torch.clone)
        tensors = tensors_of(copies)
        device = tensors[0].device if tensors else torch.device("cpu")
        with active():
            arguments = bind(function, {**copies, **family.prepared(suite.baseline, copies)})
            if takes_out(function):
                arguments["out"] = buffers_of(suite, case, Draw(device, 0))
            try:
                result = function(**arguments)
            except NotImplementedError:
                raise
            except Exception as error:
                if absent := without_gpu(error, device):
                    raise absent from error
                raise RuntimeError(f"the baseline, whose output is the reference, failed: {brief(error)}") from error
        written = [tensor for name in suite.inout for tensor in tensors_of(copies[name])]
        return tuple(tensor.detach().clone() for tensor in tensors_of(result) or written)

    suite.standard = standard


def unchecked(suite: Suite, variant: str) -> str:
    """Return what a reader must know of a check without a reference; "" for a suite that has one."""
    if suite.has_reference:
        return ""
    if variant == suite.baseline:
        return "not checked: the suite has no reference"
    return "checked against the baseline's output: the suite has no reference"
