"""Triton kernels of the ``hgemm`` family: one kernel computes addresses itself, the other loads by TMA."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.common.devices import sm_count
from kernels.common.pdl import launch_options
from kernels.common.tile_order import tile_of
from kernels.hgemm.tiles import Tile


def run_pointers(
    tile: Tile,
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    alpha: float,
    beta: float,
    out: Tensor,
    unroll: int = 0,
    pdl: bool = False,
) -> None:
    """Launch the kernel of "naive", "vectorized" and "pipelined". The caller has checked every argument.

    ``unroll`` is the number of steps of K in an iteration; 0 is one step, always with masks. From 1 on, loads have no
    masks if the tile divides the matrices.
    """
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n),)
    even = unroll > 0 and M % tile.m == N % tile.n == K % tile.k == 0
    # Passed as floats, because Triton would compile an integer alpha of 1 as a constant.
    _pointer_kernel[grid](
        a, b, c, out, M, N, K, float(alpha), float(beta), HAS_C=c is not None, EVEN=even, UNROLL=max(unroll, 1),
        PDL=pdl, BLOCK_M=tile.m, BLOCK_N=tile.n, BLOCK_K=tile.k, GROUP_M=tile.group,
        num_warps=tile.num_warps, num_stages=tile.num_stages, **launch_options(pdl),
    )  # fmt: skip


def run_tma(tile: Tile, a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    """Launch the kernel of "tma", at most one program for each multiprocessor; arguments have been checked."""
    (M, K), N = a.shape, b.shape[1]
    tiles = triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n)
    programs = min(sm_count(a.device), tiles)
    half = [tile.m, tile.n // 2]
    pdl = a.device.type != "cpu"
    _tma_kernel[(programs,)](
        TensorDescriptor.from_tensor(a, [tile.m, tile.k]),
        TensorDescriptor.from_tensor(b, [tile.k, tile.n]),
        TensorDescriptor.from_tensor(out if c is None else c, half),
        TensorDescriptor.from_tensor(out, half),
        M, N, K, float(alpha), float(beta), HAS_C=c is not None, PDL=pdl, STAY=tiles > programs, PROGRAMS=programs,
        BLOCK_M=tile.m, BLOCK_N=tile.n, BLOCK_K=tile.k, GROUP_M=tile.group,
        # C's two halves need shared memory as well, in the place of one stage of loads.
        num_warps=tile.num_warps, num_stages=tile.num_stages - (c is not None), **launch_options(pdl),
    )  # fmt: skip


@triton.jit
def _pointer_kernel(
    a, b, c, out, M, N, K, alpha, beta, HAS_C: tl.constexpr, EVEN: tl.constexpr, UNROLL: tl.constexpr,
    PDL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    first_m, first_n = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    m_inside = m < M - first_m
    n_inside = n < N - first_n
    # 64 bits only for the tile's corner: offsets within a tile fit in 32 bits and take half the registers.
    a += first_m.to(tl.int64) * K
    b += first_n
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if PDL:
        # Nothing is read before this wait, because the preceding kernel may still write it.
        gdc_wait()
    for start in tl.range(0, K, BLOCK_K, loop_unroll_factor=UNROLL):
        if EVEN:
            a_tile = tl.load(a + m[:, None] * K + k[None, :])
            b_tile = tl.load(b + k[:, None] * N + n[None, :])
        else:
            k_inside = k < K - start
            a_tile = tl.load(a + m[:, None] * K + k[None, :], mask=m_inside[:, None] & k_inside[None, :], other=0.0)
            b_tile = tl.load(b + k[:, None] * N + n[None, :], mask=k_inside[:, None] & n_inside[None, :], other=0.0)
        acc = tl.dot(a_tile, b_tile, acc)
        a += BLOCK_K
        b += BLOCK_K * N
    acc *= alpha
    inside = m_inside[:, None] & n_inside[None, :]
    corner = first_m.to(tl.int64) * N + first_n
    at = m[:, None] * N + n[None, :]
    if HAS_C:
        acc += beta * tl.load(c + corner + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + corner + at, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _tma_kernel(
    a, b, c, out, M, N, K, alpha, beta, HAS_C: tl.constexpr, PDL: tl.constexpr, STAY: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    if STAY:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        # Flattened into one loop, so that the loads of the next tile run during the stores of this one.
        for index in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
            _tma_tile(index, a, b, c, out, M, N, K, alpha, beta, HAS_C, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M)
    else:
        _tma_tile(
            tl.program_id(0), a, b, c, out, M, N, K, alpha, beta, HAS_C, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M
        )  # fmt: skip


@triton.jit
def _tma_tile(
    index, a, b, c, out, M, N, K, alpha, beta, HAS_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = tile_of(index, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        acc = tl.dot(a.load([m, start]), b.load([start, n]), acc)
    # Stored in halves: half the staging buffer leaves room for a fourth stage.
    halves = tl.permute(tl.reshape(acc * alpha, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
    left, right = tl.split(halves)
    middle = n + BLOCK_N // 2
    if HAS_C:
        left += beta * c.load([m, n]).to(tl.float32)
        right += beta * c.load([m, middle]).to(tl.float32)
    out.store([m, n], left.to(out.dtype))
    out.store([m, middle], right.to(out.dtype))
