"""Variant "gluon" of ``hgemm``: one warp loads, two warp groups multiply (Gluon, Hopper)."""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.language.nvidia.hopper import tma as gluon_tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.common.devices import sm_count
from kernels.common.gluon_compat import tma_load, tma_store
from kernels.common.tile_order import gluon_tile_of
from kernels.hgemm.tiles import Tile


def run_gluon(tile: Tile, a: Tensor, b: Tensor, alpha: float, out: Tensor) -> None:
    """Write ``out = alpha · a @ b`` with at most one program per multiprocessor; arguments have been checked."""
    (M, K), N = a.shape, b.shape[1]
    programs = min(sm_count(a.device), triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n))
    dtype = gl.float16 if a.dtype == torch.float16 else gl.bfloat16
    shapes = {"a": (a, [tile.m, tile.k]), "b": (b, [tile.k, tile.n]), "out": (out, [tile.m, tile.n // 2])}
    descriptors = {
        name: TensorDescriptor.from_tensor(tensor, shape, gl.NVMMASharedLayout.get_default_for(shape, dtype))
        for name, (tensor, shape) in shapes.items()
    }
    _gluon_kernel[(programs,)](
        **descriptors, M=M, N=N, K=K, alpha=float(alpha), PROGRAMS=programs,
        BLOCK_M=tile.m, BLOCK_N=tile.n, BLOCK_K=tile.k, GROUP_M=tile.group, STAGES=tile.num_stages,
        num_warps=tile.num_warps,
    )  # fmt: skip


@gluon.jit
def _gluon_load(
    a, b, a_ring, b_ring, full, free, M, N, K, PROGRAMS: gl.constexpr, GROUP_M: gl.constexpr
):  # fmt: skip
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[2]
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    step = 0
    for index in range(gl.program_id(0), tiles, PROGRAMS):
        m, n = gluon_tile_of(index, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        for start in range(0, K, BLOCK_K):
            slot = step % STAGES
            # The parity makes the first round pass: a new barrier counts as one whose preceding phase is complete.
            mbarrier.wait(free.index(slot), (step // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(slot), a.block_type.nbytes + b.block_type.nbytes)
            tma_load(a, [m, start], full.index(slot), a_ring.index(slot))
            tma_load(b, [start, n], full.index(slot), b_ring.index(slot))
            step += 1


@gluon.jit
def _gluon_multiply(
    out, a_ring, b_ring, full, free, M, N, K, alpha, PROGRAMS: gl.constexpr, GROUP_M: gl.constexpr
):  # fmt: skip
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, BLOCK_N, 16]
    )
    stage = gl.allocate_shared_memory(out.dtype, out.block_type.shape, out.layout)
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    step = 0
    for index in range(gl.program_id(0), tiles, PROGRAMS):
        m, n = gluon_tile_of(index, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
        for start in range(0, K, BLOCK_K):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), step // STAGES & 1)
            product = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=1, deps=[product])
            # One product stays in flight, so the free slot is that of the product before it.
            mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), pred=start > 0)
            step += 1
        acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
        mbarrier.arrive(free.index((step + STAGES - 1) % STAGES))
        # In halves, as in ``triton_kernels``; a tile's first store waits for the last store of the preceding tile.
        left, right = gl.split(gl.permute(gl.reshape(acc * alpha, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
        gluon_tma.store_wait(0)
        stage.store(left.to(out.dtype))
        fence_async_shared()
        tma_store(out, [m, n], stage)
        gluon_tma.store_wait(0)
        stage.store(right.to(out.dtype))
        fence_async_shared()
        tma_store(out, [m, n + BLOCK_N // 2], stage)
    gluon_tma.store_wait(0)


@gluon.jit
def _gluon_kernel(
    a, b, out, M, N, K, alpha, PROGRAMS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, BLOCK_M, BLOCK_K], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES, BLOCK_K, BLOCK_N], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_gluon_multiply, (out, a_ring, b_ring, full, free, M, N, K, alpha, PROGRAMS, GROUP_M)),
            (_gluon_load, (a, b, a_ring, b_ring, full, free, M, N, K, PROGRAMS, GROUP_M)),
        ],
        [1],
        [40],
    )
