"""Let the baseline stand in for a reference that a suite lacks, or that does not write the inputs ``inout``."""

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
from lockstep.timing.checks.check import brief
from lockstep.timing.checks.without_gpu import without_gpu
from lockstep.timing.checks.written_inputs import after_call


def take_as_standard(
    suite: Suite, family: Family, active: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> None:
    """Let the suite ask a family's baseline, if the suite has no reference or names inputs ``inout``."""
    function = family.variants.get(suite.baseline)
    if (suite.has_reference and not suite.inout) or function is None:
        return

    def standard(case: Case, inputs: dict[str, Any]) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
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
                raise RuntimeError(f"the baseline, which results are compared with, failed: {brief(error)}") from error
        return after_call(suite, copies, result)

    suite.standard = standard


def unchecked(suite: Suite, variant: str) -> str:
    """Return what a reader must know of a check without a reference; "" for a suite that has one."""
    if suite.has_reference:
        return ""
    if variant == suite.baseline:
        return "not checked: the suite has no reference"
    return "checked against the baseline's output: the suite has no reference"
