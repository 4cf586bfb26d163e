"""Tell what a machine without a GPU cannot run, and what Triton's interpreter computes wrongly there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from lockstep.suite.inputs import tensors_of

#: Parts of error messages on a machine without a GPU, by the package that raises the error. Triton raises it at the
#: first launch (``triton/runtime/driver.py``), torch at the first query of a GPU (``torch/cuda/__init__.py``), for
#: example by an autotuner.
_NO_GPU = {
    "0 active drivers": "Triton",
    "Torch not compiled with CUDA enabled": "torch",
    "Found no NVIDIA driver": "torch",
    "No CUDA GPUs are available": "torch",
    "with arguments from the 'CPU' backend": "an operator",
}

#: Why a wrong result in Triton's interpreter says nothing: ``tl.dot`` multiplies bfloat16 as integers there.
INTERPRETED = (
    "Triton's interpreter multiplies bfloat16 wrongly, so its result says nothing: draw float16 in the quick cases, or"
    " use a GPU"
)


def without_gpu(error: Exception, device: torch.device) -> NotImplementedError | None:
    """Return the error of a call on a machine without a GPU as a refusal; ``None`` for another error."""
    library = next((library for part, library in _NO_GPU.items() if part in str(error)), "")
    if not library or device.type != "cpu" or not isinstance(error, RuntimeError | AssertionError):
        return None
    return NotImplementedError(f"{library} finds no GPU here")


def misjudged(inputs: Mapping[str, Any]) -> bool:
    """Return whether Triton's interpreter may have computed with bfloat16 inputs."""
    tensors = tensors_of(inputs)
    return "triton.runtime.interpreter" in sys.modules and any(
        tensor.dtype == torch.bfloat16 and tensor.device.type == "cpu" for tensor in tensors
    )
