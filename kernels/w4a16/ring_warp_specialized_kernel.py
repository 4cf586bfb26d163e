"""Variant "ring" of ``kernels.w4a16``: int4 weights in planes times many float16 tokens (Gluon, Hopper).

One warp loads a ring of tiles by TMA. Two warp groups each unpack 64 output channels into registers and multiply. They
share no barrier, so one unpacks while the tensor cores work for the other. Programs are persistent.
"""

from __future__ import annotations

from typing import NamedTuple

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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.devices import sm_count
from kernels.common.gluon_compat import barrier, tma_load, tma_store
from kernels.common.tables import SearchSpace
from kernels.w4a16.int4 import PLANE_K, PLANE_N, PLANE_WORDS
from kernels.w4a16.int4_gluon import PACKED, unpack
from kernels.w4a16.planes_kernel import counters
from kernels.w4a16.table import SIZES, TABLE, search_space

#: Output channels of a tile: 64 for each of two warp groups.
CHANNELS = 2 * PLANE_N


class Ring(NamedTuple):
    """Tile config: ``tokens`` × 128 output channels; a ring of ``stages`` of 128 rows of K.

    K is split into ``parts`` parts, or into the next smaller number of parts that divides its tiles. ``beside``
    programs share a multiprocessor, which decides the registers of a thread.
    """

    tokens: int
    stages: int
    parts: int = 1
    beside: int = 1


#: Programs on a multiprocessor → registers a thread: of their twelve warps at launch, of the eight that multiply.
REGISTERS = {1: (168, 240), 2: (80, 104), 3: (56, 72)}

#: Tile of ``ring``.
RING = TABLE.choice("ring", Ring, SIZES, upto="M", derived="codes")


def rings_at(M: int, K: int, N: int, group: int | str) -> SearchSpace:
    """Return the tile configs that ``lockstep tune`` tries: less than 2·M tokens each, some with K split."""
    small_rings = [Ring(32, 4), Ring(32, 4, 2, 2), Ring(64, 4), Ring(64, 4, 2), Ring(64, 4, 2, 2)]
    large_rings = [Ring(128, 3), Ring(128, 4), Ring(128, 4, 2), Ring(256, 2)]
    rings = [*(small_rings if M <= 256 else ()), *large_rings]
    return search_space("ring", [ring for ring in rings if M > 16 and ring.tokens < 2 * M], M, K, N, group)


def multiply_ring(x: Tensor, words: Tensor, scales32: Tensor, out: Tensor, ring: Ring) -> None:
    """Write ``out = x @ W`` with a given tile config; the arguments are not checked.

    Args:
        x: float16 [M, K], K a multiple of 8.
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N].
        out: float16 [M, N].
        ring: tile config.
    """
    M, (groups, N), k_tiles = len(x), scales32.shape, words.shape[1]
    token_box, word_box = [ring.tokens, PLANE_K], [PLANE_N, PLANE_WORDS]
    tokens = TensorDescriptor.from_tensor(x, token_box, gl.NVMMASharedLayout.get_default_for(token_box, gl.float16))
    rows = words.view(-1, PLANE_WORDS)
    codes = TensorDescriptor.from_tensor(rows, word_box, gl.NVMMASharedLayout.get_default_for(word_box, gl.int16))
    out_box = [ring.tokens, PLANE_N]
    results = TensorDescriptor.from_tensor(out, out_box, gl.NVMMASharedLayout.get_default_for(out_box, gl.float16))
    tiles = triton.cdiv(M, ring.tokens) * triton.cdiv(N, CHANNELS)
    parts = max(parts for parts in range(1, ring.parts + 1) if k_tiles % parts == 0)
    programs = min(ring.beside * sm_count(x.device), tiles * parts)
    partials = x.new_empty(tiles * parts * ring.tokens * CHANNELS if parts > 1 else 0, dtype=torch.float32)
    grouped = None
    if groups > 1:
        grouped = TensorDescriptor.from_tensor(scales32, [1, PLANE_N], gl.NVMMASharedLayout(0, 32, rank=2))
    launched, multiplying = REGISTERS[ring.beside]
    _multiply_ring[(programs,)](
        tokens, codes, grouped, scales32, results, partials, counters(x.device, 2 * tiles), M, N,
        K_TILES=k_tiles,
        PARTS=parts,
        GROUP_TILES=k_tiles // groups if groups > 1 else 0,
        STAGES=ring.stages,
        REGISTERS=multiplying,
        num_warps=4,
        launch_pdl=True,
        maxnreg=launched,
    )  # fmt: skip


@gluon.jit
def _tile_of(index, M, N, BM: gl.constexpr, BN: gl.constexpr):
    """Return first token and channel of a tile; bands of eight token tiles share weights and tokens in L2."""
    n_tiles = gl.cdiv(N, BN)
    band = index // (8 * n_tiles)
    height = min(gl.cdiv(M, BM) - 8 * band, 8)
    inside = index % (8 * n_tiles)
    return (8 * band + inside % height) * BM, inside // height * BN


@gluon.jit
def _fetch_half(
    codes, scales, code_ring, scale_ring, bar, n, k_tile, at, wanted, K_TILES: gl.constexpr, GROUP_TILES: gl.constexpr
):  # fmt: skip
    """Request the words and scales of 64 channels for one tile of K."""
    tma_load(codes, [n * K_TILES + k_tile * 64, 0], bar, code_ring.index(at), pred=wanted)
    if GROUP_TILES > 0:
        tma_load(scales, [k_tile // GROUP_TILES, n], bar, scale_ring.index(at), pred=wanted)


@gluon.jit
def _feed(
    tokens, codes, scales, token_ring, code_ring, scale_ring, full, free, M, N,
    K_TILES: gl.constexpr, PARTS: gl.constexpr, GROUP_TILES: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = token_ring.shape[0]
    BM: gl.constexpr = token_ring.shape[1]
    TURNS: gl.constexpr = K_TILES // PARTS
    EARLY: gl.constexpr = min(STAGES, TURNS)
    SCALE_BYTES: gl.constexpr = scales.block_type.nbytes if GROUP_TILES > 0 else 0
    BYTES: gl.constexpr = tokens.block_type.nbytes + 2 * (codes.block_type.nbytes + SCALE_BYTES)
    # Weights are constants, so those of the first round are requested while the preceding kernel still runs.
    _, first_n = _tile_of(gl.program_id(0) // PARTS, M, N, BM, 128)
    first_k = gl.program_id(0) % PARTS * TURNS
    for early in gl.static_range(EARLY):
        mbarrier.expect(full.index(early), BYTES)
        for half in gl.static_range(2):
            _fetch_half(
                codes, scales, code_ring, scale_ring, full.index(early), first_n + half * 64, first_k + early,
                2 * early + half, True, K_TILES, GROUP_TILES,
            )  # fmt: skip
    gdc_wait()
    step = 0
    for index in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, 128) * PARTS, gl.num_programs(0)):
        m, n = _tile_of(index // PARTS, M, N, BM, 128)
        for turn in range(TURNS):
            k_tile = index % PARTS * TURNS + turn
            slot = step % STAGES
            # The parity makes the first round pass: a new barrier counts as one whose preceding phase is complete.
            mbarrier.wait(free.index(slot), (step // STAGES & 1) ^ 1)
            wanted = step >= EARLY
            mbarrier.expect(full.index(slot), BYTES, pred=wanted)
            for half in gl.static_range(2):
                _fetch_half(
                    codes, scales, code_ring, scale_ring, full.index(slot), n + half * 64, k_tile, 2 * slot + half,
                    wanted, K_TILES, GROUP_TILES,
                )  # fmt: skip
            tma_load(tokens, [m, k_tile * 128], full.index(slot), token_ring.index(slot))
            step += 1


@gluon.jit
def _multiply(
    HALF: gl.constexpr, scales32, out, results, partials, arrivals, token_ring, code_ring, scale_ring, full, free, M, N,
    K_TILES: gl.constexpr, PARTS: gl.constexpr, GROUP_TILES: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = token_ring.shape[0]
    BM: gl.constexpr = token_ring.shape[1]
    sums: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BM, 16])
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=sums, k_width=2)
    step = 0
    for index in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, 128) * PARTS, gl.num_programs(0)):
        tile = index // PARTS
        first_m, first_n = _tile_of(tile, M, N, BM, 128)
        total = gl.zeros((64, BM), gl.float32, sums)
        for _ in range(K_TILES // PARTS):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), step // STAGES & 1)
            weights = unpack(code_ring.index(2 * slot + HALF).load(PACKED), operand)
            if GROUP_TILES > 0:
                scale = scale_ring.index(2 * slot + HALF).permute((1, 0)).load(operand)
                weights = weights * scale.to(gl.float16)
            product = warpgroup_mma(weights, token_ring.index(slot).permute((1, 0)), total, is_async=True)
            # No product stays in flight: ptxas would reuse the operand's registers (see
            # ``planes_kernel.finish_products``).
            total = warpgroup_mma_wait(num_outstanding=0, deps=[product])
            mbarrier.arrive(free.index(slot))
            step += 1
        if PARTS == 1:
            _finish(total, scales32, out, results.index(HALF), first_m, first_n + HALF * 64, N, GROUP_TILES)
        else:
            row = gl.arange(0, 64, layout=gl.SliceLayout(1, sums))
            token = gl.arange(0, BM, layout=gl.SliceLayout(0, sums))
            own = (tile * 2 + HALF) * (PARTS * BM * 64) + row[:, None] * BM + token[None, :]
            gl.store(partials + index % PARTS * (BM * 64) + own, total)
            # One thread counts for all: every thread's stores must precede its release.
            barrier()
            if gl.atomic_add(arrivals + tile * 2 + HALF, 1, sem="acq_rel") == PARTS - 1:
                # Added in the order of K, not of arrival, so that the same input gives the same bits. Read from L2
                # (.cg).
                total = gl.load(partials + own, cache_modifier=".cg")
                for other in gl.static_range(1, PARTS):
                    total += gl.load(partials + other * (BM * 64) + own, cache_modifier=".cg")
                _finish(total, scales32, out, results.index(HALF), first_m, first_n + HALF * 64, N, GROUP_TILES)
                gl.store(arrivals + tile * 2 + HALF, 0)
    gluon_tma.store_wait(0)


@gluon.jit
def _finish(total, scales32, out, result, m, n, N, GROUP_TILES: gl.constexpr):
    if GROUP_TILES == 0:
        channel = n + gl.arange(0, 64, layout=gl.SliceLayout(1, total.type.layout))
        total = total * gl.expand_dims(gl.load(scales32 + channel, channel < N, other=0.0), 1)
    # The store of a tile overlaps the products of the next tile.
    gluon_tma.store_wait(0)
    result.permute((1, 0)).store(total.to(gl.float16))
    fence_async_shared()
    tma_store(out, [m, n], result)


@gluon.jit(do_not_specialize=["M"])
def _multiply_ring(
    tokens, codes, scales, scales32, out, partials, arrivals, M, N,
    K_TILES: gl.constexpr, PARTS: gl.constexpr, GROUP_TILES: gl.constexpr, STAGES: gl.constexpr,
    REGISTERS: gl.constexpr,
):  # fmt: skip
    BM: gl.constexpr = tokens.block_type.shape[0]
    token_ring = gl.allocate_shared_memory(tokens.dtype, [STAGES, BM, 128], tokens.layout)
    code_ring = gl.allocate_shared_memory(codes.dtype, [2 * STAGES, 64, 32], codes.layout)
    # A scale per channel is applied at the end, and then this ring is not used.
    scale_ring = (
        gl.allocate_shared_memory(scales.dtype, [2 * STAGES, 1, 64], scales.layout) if GROUP_TILES > 0 else code_ring
    )
    results = gl.allocate_shared_memory(out.dtype, [2, BM, 64], out.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=2)
    fence_async_shared()
    gdc_launch_dependents()
    # The default warps take the first half of the channels; the next partitions the other half, and the loads.
    first: gl.constexpr = 0
    second: gl.constexpr = 1
    gl.warp_specialize(
        [
            (_multiply, (
                first, scales32, out, results, partials, arrivals, token_ring, code_ring, scale_ring, full, free, M, N,
                K_TILES, PARTS, GROUP_TILES,
            )),
            (_multiply, (
                second, scales32, out, results, partials, arrivals, token_ring, code_ring, scale_ring, full, free, M, N,
                K_TILES, PARTS, GROUP_TILES,
            )),
            (_feed, (
                tokens, codes, scales, token_ring, code_ring, scale_ring, full, free, M, N, K_TILES, PARTS, GROUP_TILES,
            )),
        ],
        [4, 1],
        [REGISTERS, 24],
    )  # fmt: skip
