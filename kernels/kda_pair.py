"""Two launches for ``kernels.kda`` that overlap: the merged product, then f and g from f_a and g_a.

The second kernel loads its weights while the first still runs (programmatic dependent launch).
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


def second(low: torch.Tensor, w_fg: torch.Tensor, fg: torch.Tensor, block_m: int = 64, block_n: int = 64) -> None:
    """``fg[i] = low[:, i·R : (i + 1)·R] @ w_fg[i].T``.

    Args:
        low: [M, 2·R], rows at any multiple of 8 elements.
        w_fg: [2, D, R], contiguous.
        fg: [2, M, D], contiguous, written.
        block_m: tokens a program.
        block_n: columns a program.
    """
    M, (_, D, R) = low.shape[0], w_fg.shape
    _second[(2 * D // block_n, triton.cdiv(M, block_m))](
        low, w_fg, fg, M, low.stride(0), D=D, R=R, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4, launch_pdl=True
    )


@triton.jit
def _second(low, w_fg, fg, M, stride, D: tl.constexpr, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    gdc_launch_dependents()
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    half = tl.program_id(0) * BLOCK_N // D
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, R)
    weight = tl.load(w_fg + columns[:, None] * R + depth[None, :])
    gdc_wait()
    inside = (rows < M)[:, None]
    tile = tl.load(low + rows.to(tl.int64)[:, None] * stride + half * R + depth[None, :], inside, 0.0)
    result = tl.dot(tile, tl.trans(weight)).to(fg.dtype.element_ty)
    tl.store(fg + half * (M - 1) * D + rows.to(tl.int64)[:, None] * D + columns[None, :], result, inside)
