"""A plain Triton product, which variant "triton" of ``kernels.kda`` launches twice; nothing is fused."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.kda.table import TABLE


class Tile(NamedTuple):
    """Tile of one program and its compile options."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int


TILE = TABLE.choice("triton", Tile, "M", upto="M")


def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Write ``c = a @ b.mT``: [M, K] and [N, K] into [M, N], or batches of them; rows are contiguous."""
    (M, K), N = a.shape[-2:], b.shape[-2]
    tile = TILE(a.device, M)
    batch = a.shape[0] if a.dim() == 3 else 1
    batch_strides = [tensor.stride(0) if tensor.dim() == 3 else 0 for tensor in (a, b, c)]
    _product[(triton.cdiv(M, tile.BLOCK_M) * triton.cdiv(N, tile.BLOCK_N), batch)](
        a, b, c, M, N, K,
        a.stride(-2), b.stride(-2), c.stride(-2), *batch_strides,
        BLOCK_M=tile.BLOCK_M, BLOCK_N=tile.BLOCK_N, BLOCK_K=tile.BLOCK_K,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


@triton.jit
def _product(
    a, b, c, M, N, K,
    a_row, b_row, c_row, a_batch, b_batch, c_batch,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Columns outermost: programs that run together share a slice of the weight and all of a small x.
    tiles_m = tl.cdiv(M, BLOCK_M)
    # 64-bit products only for the tile's corner: offsets inside a tile fit in 32 bits and take half the registers.
    first_row = (tl.program_id(0) % tiles_m).to(tl.int64) * BLOCK_M
    first_column = (tl.program_id(0) // tiles_m).to(tl.int64) * BLOCK_N
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    row_ok = rows < M - first_row
    column_ok = columns < N - first_column
    a += batch * a_batch + first_row * a_row
    b += batch * b_batch + first_column * b_row
    a_at = rows[:, None] * a_row + depth[None, :]
    b_at = columns[None, :] * b_row + depth[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = depth < K - start
        a_tile = tl.load(a + start + a_at, row_ok[:, None] & inside[None, :], 0.0)
        b_tile = tl.load(b + start + b_at, column_ok[None, :] & inside[:, None], 0.0)
        total = tl.dot(a_tile, b_tile, total)
    c += batch * c_batch + first_row * c_row + first_column
    c_at = rows[:, None] * c_row + columns[None, :]
    tl.store(c + c_at, total.to(c.dtype.element_ty), row_ok[:, None] & column_ok[None, :])
