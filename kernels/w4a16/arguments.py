"""Check the arguments of the variants of ``w4a16`` with weights packed in planes, and their output."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.common.arguments import expect
from kernels.w4a16.int4 import PLANE_K, plane_shape


def expect_planes(x: Tensor, words: Tensor, scales32: Tensor) -> int:
    """Check a weight that is packed in planes, and return N."""
    expect(x, "x", shape=(None, None), dtype=torch.float16, contiguous=True)
    K = x.shape[1]
    expect(scales32, "scales32", shape=(None, None), dtype=torch.float32, device=x.device, contiguous=True)
    if not len(scales32) or K % len(scales32):
        raise ValueError(f"scales32 must have a number of rows that divides K={K}, got {len(scales32)}")
    N = scales32.shape[1]
    expect(words, "words", shape=plane_shape(K, N), dtype=torch.int16, device=x.device, contiguous=True)
    if len(scales32) > 1 and (group := K // len(scales32)) % PLANE_K:
        raise NotImplementedError(f"planes hold groups of a multiple of {PLANE_K} rows, got {group}")
    return N


def output(x: Tensor, N: int, out: Tensor | None) -> Tensor:
    """Return the caller's buffer, checked, or a new one: float16 [M, N]."""
    if out is None:
        return torch.empty(len(x), N, dtype=torch.float16, device=x.device)
    expect(out, "out", shape=(len(x), N), dtype=torch.float16, device=x.device, contiguous=True)
    return out
