"""Multiply few tokens by weights whose loads start before the preceding kernel has ended (Gluon, Hopper).

The tensor memory accelerator fills two rings in shared memory, one of weight tiles and one of token tiles. The first
``W_STAGES`` weight tiles are requested before ``gdc_wait``: in inference weights are constants, so the preceding kernel
does not write them. Tokens are requested after the wait. If the rings take at most half of the shared memory, programs
of this launch and of the preceding launch share a multiprocessor. Then memory stays busy while the preceding launch
adds up its partial sums.
"""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_wait

from kernels.common.gluon_compat import tma_load


def tiles_of(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Return a TMA descriptor of a contiguous 16-bit matrix, whose tiles are swizzled as the tensor cores read them."""
    dtype = gl.float16 if matrix.dtype == torch.float16 else gl.bfloat16
    return TensorDescriptor.from_tensor(
        matrix, [rows, columns], gl.NVMMASharedLayout.get_default_for([rows, columns], dtype)
    )


@gluon.jit
def fetch(tiles, row, column, ring, full, slot, wanted):
    """Request a tile into a slot of the ring, if ``wanted``. When the tile arrives, the slot's barrier completes."""
    mbarrier.expect(full.index(slot), tiles.block_type.nbytes, pred=wanted)
    tma_load(tiles, [row, column], full.index(slot), ring.index(slot), pred=wanted)


@gluon.jit
def prefetch(at):
    """Prefetch the sectors at these addresses into L2, which all multiprocessors share."""
    gl.inline_asm_elementwise(
        "prefetch.global.L2 [$1];\nmov.u32 $0, 0;", "=r,l", [at.to(gl.int64)], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def prefetch_tokens(x, token, stride, first, M, K, SPAN: gl.constexpr):
    """Prefetch x[token::stride, first : first + SPAN] into L2."""
    lanes: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    # Each thread prefetches one sector of 32 bytes.
    within = gl.arange(0, 32 * gl.num_warps(), layout=lanes) * 16
    while token < M:
        for start in gl.static_range(0, SPAN, 512 * gl.num_warps()):
            ahead = first + start + within
            prefetch(x + token * K + gl.where((start + within < SPAN) & (ahead < K), ahead, 0))
        token += stride


@gluon.jit
def prefetch_rows(matrix, row, first, N, K, ROWS: gl.constexpr, SPAN: gl.constexpr):
    """Prefetch matrix[row : row + ROWS, first : first + SPAN] into L2."""
    # Eight adjacent sectors of 32 bytes.
    lanes: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [gl.num_warps(), 1], [1, 0])
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, lanes))[:, None]
    for start in gl.static_range(0, SPAN, 128):
        columns = first + start + gl.arange(0, 8, layout=gl.SliceLayout(0, lanes))[None, :] * 16
        inside = (rows < N) & (columns < K)
        prefetch(matrix + gl.where(inside, rows.to(gl.int64) * K + columns, 0))


@gluon.jit
def stream(weight, x, row, first, steps, W_STAGES: gl.constexpr, X_STAGES: gl.constexpr):
    """Return a tile of weight rows times all tokens over ``steps`` blocks of K: float32 [BLOCK_N, BLOCK_M].

    The first block begins at ``first``. Elements beyond the edges of either matrix count as zeros.
    """
    BLOCK_N: gl.constexpr = weight.block_type.shape[0]
    BLOCK_K: gl.constexpr = weight.block_type.shape[1]
    BLOCK_M: gl.constexpr = x.block_type.shape[0]
    w_ring = gl.allocate_shared_memory(weight.dtype, [W_STAGES, BLOCK_N, BLOCK_K], weight.layout)
    x_ring = gl.allocate_shared_memory(x.dtype, [X_STAGES, BLOCK_M, BLOCK_K], x.layout)
    w_full = gl.allocate_shared_memory(gl.int64, [W_STAGES, 1], mbarrier.MBarrierLayout())
    x_full = gl.allocate_shared_memory(gl.int64, [X_STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(W_STAGES):
        mbarrier.init(w_full.index(slot), count=1)
    for slot in gl.static_range(X_STAGES):
        mbarrier.init(x_full.index(slot), count=1)
    fence_async_shared()
    for slot in gl.static_range(W_STAGES):
        fetch(weight, row, first + slot * BLOCK_K, w_ring, w_full, slot, slot < steps)
    gdc_wait()
    for slot in gl.static_range(X_STAGES):
        fetch(x, 0, first + slot * BLOCK_K, x_ring, x_full, slot, slot < steps)
    # The weight is the left operand: its rows fill the tensor core's 64-wide M side, tokens the narrow N side.
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, BLOCK_M, 16]
    )
    total = gl.zeros((BLOCK_N, BLOCK_M), gl.float32, layout)
    for step in range(steps):
        mbarrier.wait(w_full.index(step % W_STAGES), step // W_STAGES & 1)
        mbarrier.wait(x_full.index(step % X_STAGES), step // X_STAGES & 1)
        product = warpgroup_mma(
            w_ring.index(step % W_STAGES), x_ring.index(step % X_STAGES).permute((1, 0)), total, is_async=True
        )
        # One product stays in flight, so the free slots are those of the product before it.
        total = warpgroup_mma_wait(num_outstanding=1, deps=[product])
        ahead = step + W_STAGES - 1
        fetch(
            weight, row, first + ahead * BLOCK_K, w_ring, w_full, ahead % W_STAGES, (step > 0) & (ahead < steps)
        )  # fmt: skip
        ahead = step + X_STAGES - 1
        fetch(x, 0, first + ahead * BLOCK_K, x_ring, x_full, ahead % X_STAGES, (step > 0) & (ahead < steps))
    return warpgroup_mma_wait(num_outstanding=0, deps=[total])
