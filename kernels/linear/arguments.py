"""Check the arguments of every variant of ``linear``."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.common.arguments import expect

FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def checked(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None) -> Tensor:
    """Check every argument, and return ``out`` or a new output."""
    expect(x, "x", shape=(None, None), dtype=FLOATS, contiguous=True)
    expect(weight, "weight", shape=(None, x.shape[1]), dtype=x.dtype, device=x.device, contiguous=True)
    if bias is not None:
        expect(bias, "bias", shape=(weight.shape[0],), dtype=x.dtype, device=x.device, contiguous=True)
    if out is None:
        return x.new_empty(x.shape[0], weight.shape[0])
    expect(out, "out", shape=(x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device, contiguous=True)
    return out
