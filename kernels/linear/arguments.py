"""Check the arguments of every variant of ``linear``."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from kernels.common.arguments import expect
from kernels.common.devices import sm_count

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


def divide(name: str, x: Tensor, N: int, m: int, n: int, k: int, parts: int) -> tuple[int, int]:
    """Return tiles of N, and steps of K in each part, for a variant whose programs wait for each other.

    Args:
        name: the variant.
        x: [M, K].
        N: rows of the weight.
        m, n, k: tokens and weight rows of a tile, and the depth of a step.
        parts: parts of K. Each tile has a program for each part.

    Raises:
        NotImplementedError: x has more rows than the tile, K does not divide into the parts, or the launch has more
            programs than the GPU has multiprocessors. Some programs would then wait for others that cannot start.
    """
    (M, K), tiles, steps, places = x.shape, triton.cdiv(N, n), triton.cdiv(x.shape[1], k), sm_count(x.device)
    if m < M:
        raise NotImplementedError(f"{name}'s tile is for up to {m} rows, got {M}")
    if steps % parts:
        raise NotImplementedError(f"{name} cannot divide K={K}, {steps} steps of {k}, into {parts} parts")
    if tiles * parts > places:
        raise NotImplementedError(
            f"{name} needs all its programs resident at once: {tiles * parts} for N={N} in {parts} parts, "
            f"and {x.device} has {places} multiprocessors"
        )
    return tiles, steps // parts
