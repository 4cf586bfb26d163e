"""Products of large tiles by warp groups that do not synchronise with each other (Gluon, Hopper).

One warp loads the operands into a ring by TMA. Each of two warp groups multiplies 64 rows of a 128 × 256 tile and
stores them by TMA from its own buffers. A group waits for the ring, never for the other group. The second group starts
some steps later, so that one group's epilogue overlaps the other's products and the tensor cores stay busy between
tiles. CUTLASS divides the work in the same way with one tile for each group ("ping-pong") or a barrier between the
groups ("cooperative").

Operands of several groups lie in one matrix each: see ``kernels.grouped.tile_schedule``. A tile that reaches beyond the
end of a ragged group is stored without TMA, which would also store the rows of the next group. ``kernels.common.pdl``
describes the order of launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.devices import sm_count
from kernels.common.gated_epilogues import feed_gate_up, store_gated, store_gated_grad
from kernels.common.gluon_compat import tma_load
from kernels.common.pdl import launch_options
from kernels.common.warp_group_tiles import scheduled_tile, store_quarters, store_rows, tile_of


class TileConfig(NamedTuple):
    """Tiling of a product: steps of ``k``, a ring of ``stages``, ``buffers`` of 64 × 64 for a warp group's stores.

    The second warp group starts once slot ``stagger`` of the ring is filled for the first time. ``band`` is the number
    of tile rows that are taken together; 0 takes tiles row by row.
    """

    k: int
    stages: int
    buffers: int
    stagger: int
    band: int = 0


#: By the names that tables use: k, stages, buffers. They take 208 to 224 KB of the 227 KB that a program may have.
TILE_CONFIGS = {
    "k64s3b4": TileConfig(64, 3, 4, 1),
    "k64s4b2": TileConfig(64, 4, 2, 1),
    "k32s6b4": TileConfig(32, 6, 4, 2),
    "k32s7b3": TileConfig(32, 7, 3, 2),
    "k32s8b2": TileConfig(32, 8, 2, 2),
}

#: Rows and columns of a tile.
ROWS, COLUMNS = 128, 256

#: Layout of the operands: a[m, k] @ b[k, n], a[m, k] @ b[n, k], a[k, m] @ b[k, n].
NN, NT, TN = gl.constexpr(0), gl.constexpr(1), gl.constexpr(2)
#: Epilogue of a tile: store; store the halves apart; activate; activate and keep; turn into gradients.
PLAIN, PAIR, GATED, KEPT, GRAD = (gl.constexpr(number) for number in range(5))

#: Registers a thread: at launch (for 12 warps), of the warps that multiply, of those that load.
LAUNCHED, MULTIPLYING, LOADING = 168, 240, 24


def described(matrix: torch.Tensor, shape: Sequence[int], box: Sequence[int]) -> TensorDescriptor:
    """Return a TMA descriptor that views a contiguous 16-bit matrix as ``shape`` and moves it in tiles of ``box``.

    In shared memory the tiles are swizzled as the tensor cores read them.

    Raises:
        NotImplementedError: the matrix does not begin at a multiple of 16 bytes, which TMA needs.
    """
    if matrix.data_ptr() % 16:
        raise NotImplementedError("warp_specialized needs matrices that begin at a multiple of 16 bytes")
    dtype = gl.float16 if matrix.dtype == torch.float16 else gl.bfloat16
    layout = gl.NVMMASharedLayout.get_default_for(list(box), dtype)
    return TensorDescriptor(matrix, list(shape), [shape[1], 1], list(box), layout)


def launch(
    a: TensorDescriptor, b: TensorDescriptor, target: TensorDescriptor, sizes: tuple[int, int, int, int],
    config: TileConfig, order: int, mode: gl.constexpr = NN, epilogue: gl.constexpr = PLAIN,
    other: TensorDescriptor | None = None, gate_up: TensorDescriptor | None = None,
    scheduled: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Launch the products of G groups, [M, D] by [D, N] each. The caller has checked every argument.

    Args:
        a: the left operands in boxes of 64 rows of the product by ``config.k``, laid out as ``mode`` says.
        b: the right operands in boxes of ``config.k`` by 256 columns.
        target: the matrix to write, in boxes of 64 × 64.
        sizes: G, M, N, D. N must be a multiple of 256, M of 128 in mode TN, D of ``config.k`` in the other modes.
        config: the tile config.
        order: when the launch waits for the preceding launch, see ``kernels.common.pdl``.
        mode: the layout of the operands: NN, NT or TN.
        epilogue: what each tile stores: PLAIN, PAIR, GATED, KEPT or GRAD.
        other: the second target of PAIR and KEPT, in boxes of 64 × 64.
        gate_up: gate and up, which GRAD reads beside each tile, in boxes of 64 × 64.
        scheduled: the row tiles of ragged groups (``kernels.grouped.tile_schedule``), only for PLAIN in modes NN and
            NT; M then has no effect.

    Raises:
        NotImplementedError: too few terms in each sum for the tile config.
    """
    G, M, N, D = sizes
    if triton.cdiv(D, config.k) <= config.stagger:
        # The second warp group would wait for a slot that a program with one tile never fills.
        least = config.stagger * config.k
        raise NotImplementedError(f"warp_specialized needs sums of more than {least} terms for this config, got {D}")
    rows = G * triton.cdiv(M, ROWS) if scheduled is None else len(scheduled) - 1
    tiles = rows * (N // COLUMNS)
    _specialized[(min(tiles, sm_count(target.base.device)),)](
        a, b, target, other or target, gate_up or target,
        target.base, target.base if scheduled is None else scheduled, tiles, M, N, D,
        RAGGED=scheduled is not None, MODE=mode.value, EPILOGUE=epilogue.value, ORDER=order, STAGES=config.stages,
        BUFFERS=config.buffers, STAGGER=config.stagger, BAND=config.band, MULTIPLYING=MULTIPLYING, LOADING=LOADING,
        num_warps=4, maxnreg=LAUNCHED, **launch_options(order),
    )  # fmt: skip


@gluon.jit
def _feed(
    a, b, a_ring, b_ring, full, free, scheduled, tiles, M, N, D,
    MODE: gl.constexpr, BAND: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = b_ring.shape[0]
    BLOCK_K: gl.constexpr = a_ring.shape[1] if MODE == TN else a_ring.shape[2]
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        if RAGGED:
            group, row, column, _ = scheduled_tile(tile, scheduled, N)
            first_d = 0
        else:
            group, row, column = tile_of(tile, M, N, BAND)
            first_d = group * D
        for d in range(0, D, BLOCK_K):
            slot = step % STAGES
            # The parity makes the first round pass: a new barrier counts as one whose preceding phase is complete.
            mbarrier.wait(free.index(slot), (step // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(slot), 2 * a.block_type.nbytes + b.block_type.nbytes)
            for half in gl.static_range(2):
                if MODE == TN:
                    tma_load(a, [d, group * M + row + 64 * half], full.index(slot), a_ring.index(2 * slot + half))
                else:
                    tma_load(a, [row + 64 * half, first_d + d], full.index(slot), a_ring.index(2 * slot + half))
            if MODE == NN:
                tma_load(b, [group * D + d, column], full.index(slot), b_ring.index(slot))
            elif MODE == NT:
                tma_load(b, [group * N + column, d], full.index(slot), b_ring.index(slot))
            else:
                tma_load(b, [d, group * N + column], full.index(slot), b_ring.index(slot))
            step += 1


@gluon.jit
def _multiply(
    HALF: gl.constexpr, target, other, a_ring, b_ring, buffers, full, free, kept_full, kept_free,
    pointer, scheduled, tiles, M, N, D,
    MODE: gl.constexpr, EPILOGUE: gl.constexpr, BAND: gl.constexpr, STAGGER: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = b_ring.shape[0]
    BLOCK_K: gl.constexpr = a_ring.shape[1] if MODE == TN else a_ring.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16])
    step = 0
    count = 0
    # Ragged groups may have fewer tiles than there are programs: nothing is loaded for a program without a tile.
    if HALF == 1 and STAGGER > 0 and gl.program_id(0) < tiles:
        mbarrier.wait(full.index(STAGGER), 0)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        if RAGGED:
            group, row, column, rows = scheduled_tile(tile, scheduled, N)
        else:
            group, row, column = tile_of(tile, M, N, BAND)
        row += 64 * HALF
        total = gl.zeros((64, 256), gl.float32, layout)
        for d in range(0, D, BLOCK_K):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), step // STAGES & 1)
            left = a_ring.index(2 * slot + HALF)
            right = b_ring.index(slot)
            if MODE == TN:
                left = left.permute((1, 0))
            if MODE == NT:
                right = right.permute((1, 0))
            product = warpgroup_mma(left, right, total, is_async=True)
            # One product stays in flight, so the free slot is that of the product before it.
            total = warpgroup_mma_wait(num_outstanding=1, deps=[product])
            mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), pred=d > 0)
            step += 1
        total = warpgroup_mma_wait(num_outstanding=0, deps=[total])
        mbarrier.arrive(free.index((step + STAGES - 1) % STAGES))
        if EPILOGUE == GRAD:
            count = store_gated_grad(total, target, group, row, column, N, buffers, kept_full, kept_free, count, HALF)
        elif EPILOGUE == KEPT:
            count = store_gated(total, target, other, group, row, column, N, buffers, count, HALF, True)
        elif EPILOGUE == GATED:
            count = store_gated(total, target, other, group, row, column, N, buffers, count, HALF, False)
        elif EPILOGUE == PAIR:
            store_quarters(total, target, other, group * M + row, column // 2, buffers, count, HALF, True)
            count += 4
        elif RAGGED:
            if rows >= 64 * HALF + 64:
                store_quarters(total, target, target, row, column, buffers, count, HALF, False)
                count += 4
            else:
                store_rows(total, pointer, row, column, rows - 64 * HALF, N)
        elif MODE == TN:
            store_quarters(total, target, target, group * M + row, column, buffers, count, HALF, False)
            count += 4
        else:
            store_quarters(total, target, target, row, group * N + column, buffers, count, HALF, False)
            count += 4
    gluon_tma.store_wait(0)


@gluon.jit
def _specialized(
    a, b, target, other, gate_up, pointer, scheduled, tiles, M, N, D,
    RAGGED: gl.constexpr, MODE: gl.constexpr, EPILOGUE: gl.constexpr, ORDER: gl.constexpr,
    STAGES: gl.constexpr, BUFFERS: gl.constexpr, STAGGER: gl.constexpr, BAND: gl.constexpr,
    MULTIPLYING: gl.constexpr, LOADING: gl.constexpr,
):  # fmt: skip
    a_box: gl.constexpr = a.block_type.shape
    b_box: gl.constexpr = b.block_type.shape
    a_ring = gl.allocate_shared_memory(a.dtype, [2 * STAGES, a_box[0], a_box[1]], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES, b_box[0], b_box[1]], b.layout)
    buffers = gl.allocate_shared_memory(target.dtype, [2 * BUFFERS, 64, 64], target.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=2)
    kept_full = full
    kept_free = free
    if EPILOGUE == GRAD:
        # Gate and up go into the buffers that store their gradients: two buffers a slot, half the slots a group.
        kept_full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
        kept_free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
        for slot in gl.static_range(BUFFERS):
            mbarrier.init(kept_full.index(slot), count=1)
            mbarrier.init(kept_free.index(slot), count=1)
    fence_async_shared()
    if ORDER == 1:
        gdc_wait()
    if ORDER > 0:
        gdc_launch_dependents()
    if RAGGED:
        # The last row of the schedule holds the number of row tiles; ``tiles`` is an upper bound.
        tiles = gl.load(scheduled + tiles // (N // 256) * 3) * (N // 256)
    upper: gl.constexpr = 0
    lower: gl.constexpr = 1
    # Written out twice: a tuple assigned to a name loses its compile-time values.
    if EPILOGUE == GRAD:
        gl.warp_specialize(
            [
                (_multiply, (
                    upper, target, other, a_ring, b_ring, buffers, full, free, kept_full, kept_free,
                    pointer, scheduled, tiles, M, N, D, MODE, EPILOGUE, BAND, STAGGER, RAGGED,
                )),
                (_multiply, (
                    lower, target, other, a_ring, b_ring, buffers, full, free, kept_full, kept_free,
                    pointer, scheduled, tiles, M, N, D, MODE, EPILOGUE, BAND, STAGGER, RAGGED,
                )),
                (_feed, (a, b, a_ring, b_ring, full, free, scheduled, tiles, M, N, D, MODE, BAND, RAGGED)),
                (feed_gate_up, (gate_up, buffers, kept_full, kept_free, tiles, M, N, BAND)),
            ],
            [4, 1, 1],
            [MULTIPLYING, LOADING, LOADING],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_multiply, (
                    upper, target, other, a_ring, b_ring, buffers, full, free, kept_full, kept_free,
                    pointer, scheduled, tiles, M, N, D, MODE, EPILOGUE, BAND, STAGGER, RAGGED,
                )),
                (_multiply, (
                    lower, target, other, a_ring, b_ring, buffers, full, free, kept_full, kept_free,
                    pointer, scheduled, tiles, M, N, D, MODE, EPILOGUE, BAND, STAGGER, RAGGED,
                )),
                (_feed, (a, b, a_ring, b_ring, full, free, scheduled, tiles, M, N, D, MODE, BAND, RAGGED)),
            ],
            [4, 1],
            [MULTIPLYING, LOADING],
        )  # fmt: skip
    if ORDER == 2:
        gdc_wait()
