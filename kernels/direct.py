"""A product of few tokens with whole rows of a weight, all of it asked for ahead (Gluon, Hopper).

A program owns a few rows of the weight. Each of its warps takes every ``WARPS``-th 64 elements of K, and one sum
through shared memory joins the warps. Everything that the program reads is on its way before ``gdc_wait``: the first
tiles of the weight to registers, the next to shared memory, x (which the kernel ahead may still be writing) only to
L2, where a later write finds it.

Elements travel as they lie in memory. A product is the same for any order of K, so a thread hands the tensor core the
eight consecutive elements of its 16-byte load where ``mma.sync`` would have pairs from two places, and the same of x:
``k_width=8``. No transposition through shared memory, and x comes straight from L2 to registers.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_wait

from kernels.streaming import _tma_load, barrier, prefetch_tokens

#: Elements of K a warp takes at once: a line of 128 bytes.
CHUNK = 64


def chunks_of(weight: Tensor, rows: int, warps: int) -> TensorDescriptor:
    """Descriptor of [N, K] as [K / 64, N, 64] in tiles of [warps, rows, 64]: the chunks of a step beside each other."""
    N, K = weight.shape
    block = [warps, rows, CHUNK]
    dtype = gl.float16 if weight.dtype == torch.float16 else gl.bfloat16
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
    return TensorDescriptor(weight, [K // CHUNK, N, CHUNK], [CHUNK, K, 1], block, layout)


@gluon.jit
def _and(tiles, tile):
    """A longer tuple. Triton knows no unpacking, and a type checker no tuple that grows."""
    return tiles + (tile,)  # noqa: RUF005


@gluon.jit
def _fetch(chunks, row, first, step, ring, full, slot):
    WARPS: gl.constexpr = chunks.block_type.shape[0]
    mbarrier.expect(full.index(slot), chunks.block_type.nbytes)
    _tma_load(chunks, [first + step * WARPS, row, 0], full.index(slot), ring.index(slot))


@gluon.jit
def direct(
    chunks, weight, x, row, first, spread, M, N, K, EVEN_K: gl.constexpr, STEPS: gl.constexpr, BLOCK_M: gl.constexpr,
    KEPT: gl.constexpr, STAGES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """[ROWS, BLOCK_M] float32: rows of the weight from ``row`` times all tokens, over STEPS · WARPS chunks of K.

    Args:
        chunks: ``chunks_of(weight, ROWS, WARPS)``.
        weight: [N, K], read up to its edge; so is ``x`` [M, K].
        x: see there.
        row: the first row of the weight.
        first: the first chunk of K.
        spread: (this program's number, of how many) among those that see to it that x is in L2.
        M: tokens, at most BLOCK_M.
        N: rows of the weight.
        K: their length.
        EVEN_K: whether all chunks are inside.
        STEPS: chunks a warp.
        BLOCK_M: a multiple of 8.
        KEPT: steps whose weights go to registers; they come first.
        STAGES: steps whose weights go to shared memory at once; from there on each waits for a free place.
        TOGETHER: steps whose tokens are in registers at once.
    """
    WARPS: gl.constexpr = gl.num_warps()
    ROWS: gl.constexpr = chunks.block_type.shape[1]
    CHUNK: gl.constexpr = chunks.block_type.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 8)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 8)
    ring = gl.allocate_shared_memory(chunks.dtype, [STAGES, WARPS, ROWS, CHUNK], chunks.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
    fence_async_shared()
    for slot in gl.static_range(STAGES):
        if KEPT + slot < STEPS:
            _fetch(chunks, row, first, KEPT + slot, ring, full, slot)
    warp = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, left)))[:, None, None]
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(0, gl.SliceLayout(2, left)))[None, :, None] + row
    depth = gl.arange(0, CHUNK, layout=gl.SliceLayout(0, gl.SliceLayout(1, left)))[None, None, :]
    depth = (first + warp) * CHUNK + depth
    # Rows beyond the edge read row 0 again instead of being masked: they are never stored.
    w_at = weight + gl.where(rows < N, rows, 0).to(gl.int64) * K + depth
    kept = ()
    for step in gl.static_range(KEPT):
        if EVEN_K:
            kept = _and(kept, gl.load(w_at + step * (WARPS * CHUNK)))
        else:
            kept = _and(
                kept, gl.load(w_at + step * (WARPS * CHUNK), mask=depth + step * (WARPS * CHUNK) < K, other=0.0)
            )
    prefetch_tokens(x, spread[0], spread[1], first * CHUNK, M, K, STEPS * WARPS * CHUNK)
    gdc_wait()
    warp = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, right)))[:, None, None]
    depth = gl.arange(0, CHUNK, layout=gl.SliceLayout(0, gl.SliceLayout(2, right)))[None, :, None]
    token = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, gl.SliceLayout(1, right)))[None, None, :]
    depth = (first + warp) * CHUNK + depth
    x_at = x + token * K + depth
    total = gl.zeros((WARPS, ROWS, BLOCK_M), gl.float32, layout)
    for start in gl.static_range(0, STEPS, TOGETHER):
        tokens = ()
        for step in gl.static_range(start, min(start + TOGETHER, STEPS)):
            inside = token < M
            if not EVEN_K:
                inside = inside & (depth + step * (WARPS * CHUNK) < K)
            tokens = _and(tokens, gl.load(x_at + step * (WARPS * CHUNK), mask=inside, other=0.0))
        for step in gl.static_range(start, min(start + TOGETHER, STEPS)):
            if step < KEPT:
                total = mma_v2(kept[step], tokens[step - start], total)
            else:
                mbarrier.wait(full.index((step - KEPT) % STAGES), (step - KEPT) // STAGES & 1)
                total = mma_v2(ring.index((step - KEPT) % STAGES).load(left), tokens[step - start], total)
                if step + STAGES < STEPS:
                    barrier()
                    _fetch(chunks, row, first, step + STAGES, ring, full, (step - KEPT) % STAGES)
    return gl.sum(total, axis=0)
