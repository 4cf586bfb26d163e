"""Find operators of other libraries whose code for a GPU is a Python function: a trace can follow it."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

#: torch's own namespaces of operators.
OF_TORCH = ("aten", "prims")


@functools.cache
def python_kernel(operator: Any) -> Any:
    """Return the dispatch key under which ``operator`` has a function of Python for CUDA tensors, or ``None``.

    ``torch.library`` registers such functions: ``triton_op``, ``custom_op``, and ``Library.impl`` for "CUDA". torch
    does not return them, but states the file that registered each kernel.
    """
    if not isinstance(operator, torch._ops.OpOverload):
        return None
    # The first key with a kernel is the one that torch would take.
    found = re.search(
        r"^(CUDA|CompositeExplicitAutograd|CompositeImplicitAutograd)(?:\[alias\])?: registered at (\S+)",
        torch._C._dispatch_dump(operator.name()),
        re.MULTILINE,
    )
    if found is None or not re.search(r"\.py:\d+$", found[2]):
        return None
    return getattr(torch._C.DispatchKey, found[1])
