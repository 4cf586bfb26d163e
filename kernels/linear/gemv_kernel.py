"""Variant "gemv" of ``kernels.linear``: whole rows of the weight directly to registers, no tensor cores."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.pdl import launch_options
from kernels.common.tables import SearchSpace
from kernels.linear.product_kernel import store
from kernels.linear.table import TABLE, search_space


class Vectors(NamedTuple):
    """Tile config of "gemv": ``n`` weight rows for each program, in steps of ``k`` elements of K."""

    n: int
    k: int
    num_warps: int


#: Tile of "gemv", and whether it loads its weights before the wait. On an H200 with free clocks an early load changes K
#: 7168, N 576 from 4.3 to 3.0 µs, but K 4096, N 2048 from 5.6 to 6.0 µs: programs that fill the GPU early delay the
#: preceding kernel.
VECTORS = TABLE.maybe("gemv", Vectors, "M K N", upto="M")
AHEAD = TABLE.choice("gemv_ahead", bool, "M K N", upto="M")


def vectors_at(M: int, K: int, N: int) -> SearchSpace:
    """Return the tiles that ``lockstep tune`` tries: one to four rows of the weight for each program."""
    tiles = [Vectors(n, k, warps) for n in (1, 2, 4) for k in (2048, 4096) for warps in (8, 16)]
    return search_space("gemv", tiles if M <= 4 else [], M, K, N)


def run_gemv(tile: Vectors, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, *, pdl: bool) -> None:
    """Write ``out = x @ weight.T + bias`` without tensor cores. The caller has checked every argument."""
    (M, K), N = x.shape, weight.shape[0]
    block_k = min(tile.k, triton.next_power_of_2(K))
    _gemv_kernel[(triton.cdiv(N, tile.n),)](
        x, weight, bias, out, N, K,
        PDL=pdl, AHEAD=AHEAD(x.device, M, K, N), HAS_BIAS=bias is not None, EVEN_K=K % block_k == 0,
        M=M, ROWS=triton.next_power_of_2(M), BLOCK_N=tile.n, BLOCK_K=block_k, STEPS=triton.cdiv(K, block_k),
        num_warps=tile.num_warps, **launch_options(pdl),
    )  # fmt: skip


@triton.jit
def _and(tiles, tile):
    """Return a tuple with ``tile`` appended, by an expression that Triton compiles and a type checker accepts."""
    return tiles + (tile,)  # noqa: RUF005


@triton.jit
def _gemv_kernel(
    x, weight, bias, out, N, K, PDL: tl.constexpr, AHEAD: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr,
    M: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    m = tl.arange(0, ROWS)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    w_at = weight + tl.where(n < N, n, 0).to(tl.int64)[None, :, None] * K + k[None, None, :]
    x_at = x + tl.where(m < M, m, 0)[:, None, None] * K + k[None, None, :]
    if PDL and not AHEAD:
        gdc_wait()
    # Load all of the program's weights. With AHEAD they are loaded before the wait; the preceding kernel does not write
    # them.
    w_tiles = ()
    for step in tl.static_range(STEPS):
        if EVEN_K:
            w_tiles = _and(w_tiles, tl.load(w_at + step * BLOCK_K))
        else:
            inside = (k < K - step * BLOCK_K)[None, None, :]
            w_tiles = _and(w_tiles, tl.load(w_at + step * BLOCK_K, mask=inside, other=0.0))
    if PDL and AHEAD:
        gdc_wait()
    acc = tl.zeros((ROWS, BLOCK_N, BLOCK_K), dtype=tl.float32)
    for step in tl.static_range(STEPS):
        if EVEN_K:
            x_tile = tl.load(x_at + step * BLOCK_K)
        else:
            x_tile = tl.load(x_at + step * BLOCK_K, mask=(k < K - step * BLOCK_K)[None, None, :], other=0.0)
        acc += w_tiles[step].to(tl.float32) * x_tile.to(tl.float32)
    store(tl.sum(acc, axis=2), bias, out, m, n, M, N, HAS_BIAS)
