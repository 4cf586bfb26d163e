"""Variant "stream" of ``kernels.w4a16``: multiply int4 weights, stored as planes, by few tokens (Gluon, Hopper).

The tensor memory accelerator starts to fill a ring buffer in shared memory before the preceding kernel has ended. This
is safe because weights and scales are constants in inference, which the preceding kernel does not write. If the ring
takes at most half of the shared memory, the next launch can fill its ring while this launch adds up its partial sums.
Warps unpack the weights into registers and multiply them by ``mma.sync``: with few tokens the fences and waits of
Hopper's asynchronous products cost more than these products gain (``docs/evidence/kernels/w4a16.md``).
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.gluon_compat import barrier, tma_load
from kernels.w4a16.int4 import PLANE_K, PLANE_N, PLANE_WORDS
from kernels.w4a16.int4_gluon import PACKED, unpack
from kernels.w4a16.planes_kernel import counters
from kernels.w4a16.stream_tiles import Stream, parts_of


def multiply_stream(x: Tensor, words: Tensor, scales32: Tensor, out: Tensor, stream: Stream) -> None:
    """Write ``out = x @ W`` with a given tile config; the arguments are not checked.

    Args:
        x: float16 [M, K], K a multiple of 8, M at most ``stream.tokens``.
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N], N a multiple of 4.
        out: float16 [M, N].
        stream: tile config.
    """
    (groups, N), k_tiles = scales32.shape, words.shape[1]
    tiles, parts = triton.cdiv(N, stream.channels), parts_of(stream, k_tiles, N, x.device)
    token_box, word_box, scale_box = [stream.tokens, PLANE_K], [PLANE_N, PLANE_WORDS], [1, stream.channels]
    tokens = TensorDescriptor.from_tensor(x, token_box, gl.NVMMASharedLayout.get_default_for(token_box, gl.float16))
    rows = words.view(-1, PLANE_WORDS)
    codes = TensorDescriptor.from_tensor(rows, word_box, gl.NVMMASharedLayout.get_default_for(word_box, gl.int16))
    grouped = None
    if groups > 1:
        grouped = TensorDescriptor.from_tensor(scales32, scale_box, gl.NVMMASharedLayout(0, 32, rank=2))
    partials = x.new_empty(tiles * parts * stream.tokens * stream.channels if parts > 1 else 0, dtype=torch.float32)
    _multiply_stream[(tiles, parts)](
        tokens, codes, grouped, scales32, out, partials, counters(x.device, tiles), len(x), N,
        K_TILES=k_tiles,
        TURNS=triton.cdiv(triton.cdiv(k_tiles, stream.depth * stream.crews), parts),
        PARTS=parts,
        GROUP_TILES=k_tiles // groups if groups > 1 else 0,
        BN=stream.channels,
        DEPTH=stream.depth,
        STAGES=stream.stages,
        CREWS=stream.crews,
        REGISTERS=stream.registers,
        LATE=stream.late,
        num_warps=4,
        launch_pdl=True,
        **({"maxnreg": stream.registers} if stream.crews > 1 else {}),
    )  # fmt: skip


@gluon.jit
def _fetch_weights(
    codes, scales, code_ring, scale_ring, full, tile, first, slot, wanted, TOKEN_BYTES: gl.constexpr,
    K_TILES: gl.constexpr, GROUP_TILES: gl.constexpr, DEPTH: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    """Request the weights and scales of one iteration. The iteration's barrier waits for the tokens as well."""
    SCALE_BYTES: gl.constexpr = scales.block_type.nbytes if GROUP_TILES > 0 else 0
    bar = full.index(slot)
    mbarrier.expect(bar, DEPTH * (BLOCKS * codes.block_type.nbytes + SCALE_BYTES + TOKEN_BYTES), pred=wanted)
    for inner in gl.static_range(DEPTH):
        for block in gl.static_range(BLOCKS):
            row = ((tile * BLOCKS + block) * K_TILES + first + inner) * 64
            at = (slot * DEPTH + inner) * BLOCKS + block
            tma_load(codes, [row, 0], bar, code_ring.index(at), pred=wanted)
        if GROUP_TILES > 0:
            row = (first + inner) // GROUP_TILES
            tma_load(scales, [row, tile * BLOCKS * 64], bar, scale_ring.index(slot * DEPTH + inner), pred=wanted)


@gluon.jit
def _fetch_tokens(tokens, token_ring, full, first, slot, wanted, DEPTH: gl.constexpr):
    for inner in gl.static_range(DEPTH):
        tma_load(
            tokens, [0, (first + inner) * 128], full.index(slot), token_ring.index(slot * DEPTH + inner), pred=wanted
        )  # fmt: skip


@gluon.jit
def _side_by_side(above, below, layout: gl.constexpr):
    """Join two blocks of channels into one block of twice as many channels. No data moves between threads."""
    joined = gl.join(above, below).permute((2, 0, 1)).reshape((2 * above.shape[0], above.shape[1]))
    return gl.convert_layout(joined, layout, assert_trivial=True)


@gluon.jit
def _work(
    WHO: gl.constexpr, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
    K_TILES: gl.constexpr, TURNS: gl.constexpr, GROUP_TILES: gl.constexpr, BN: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr, CREWS: gl.constexpr, LATE: gl.constexpr,
):  # fmt: skip
    """Return the sums [BN, BM] of one crew (four warps) over every ``CREWS``-th iteration of a part of K."""
    BM: gl.constexpr = tokens.block_type.shape[0]
    BLOCKS: gl.constexpr = BN // 64
    TOKEN_BYTES: gl.constexpr = tokens.block_type.nbytes
    STRIDE: gl.constexpr = CREWS * DEPTH
    OWN: gl.constexpr = WHO * STAGES
    sums: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[4, 1], instr_shape=[16, 8])
    left: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=sums, k_width=2)
    right: gl.constexpr = gl.DotOperandLayout(operand_index=1, parent=sums, k_width=2)
    first = part * (TURNS * STRIDE) + WHO * DEPTH
    for early in gl.static_range(min(STAGES, TURNS)):
        _fetch_weights(
            codes, scales, code_ring, scale_ring, full, tile, first + early * STRIDE, OWN + early, True,
            TOKEN_BYTES, K_TILES, GROUP_TILES, DEPTH, BLOCKS,
        )  # fmt: skip
    gdc_wait()
    for early in gl.static_range(min(STAGES, TURNS)):
        _fetch_tokens(tokens, token_ring, full, first + early * STRIDE, OWN + early, True, DEPTH)
    if LATE and TURNS <= STAGES:
        gdc_launch_dependents()
    total = gl.zeros((BN, BM), gl.float32, sums)
    none = gl.zeros((64, BM), gl.float32, sums)
    for turn in range(TURNS):
        slot = OWN + turn % STAGES
        mbarrier.wait(full.index(slot), turn // STAGES & 1)
        for inner in gl.static_range(DEPTH):
            x = token_ring.index(slot * DEPTH + inner).permute((1, 0)).load(right)
            at = (slot * DEPTH + inner) * BLOCKS
            product = mma_v2(unpack(code_ring.index(at).load(PACKED), left), x, none)
            if BLOCKS == 2:
                other = mma_v2(unpack(code_ring.index(at + 1).load(PACKED), left), x, none)
                product = _side_by_side(product, other, sums)
            if GROUP_TILES > 0:
                scale = scale_ring.index(slot * DEPTH + inner).permute((1, 0)).load(sums)
                total += product * scale
            else:
                total += product
        if TURNS > STAGES:
            # All warps of the crew have read the slot.
            barrier()
            ahead = turn + STAGES
            _fetch_weights(
                codes, scales, code_ring, scale_ring, full, tile, first + ahead * STRIDE, slot, ahead < TURNS,
                TOKEN_BYTES, K_TILES, GROUP_TILES, DEPTH, BLOCKS,
            )  # fmt: skip
            _fetch_tokens(tokens, token_ring, full, first + ahead * STRIDE, slot, ahead < TURNS, DEPTH)
            if LATE & (ahead == TURNS - 1):
                gdc_launch_dependents()
    # A partition returns a tuple.
    return (total,)


@gluon.jit
def _help(
    WHO: gl.constexpr, others, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
    K_TILES: gl.constexpr, TURNS: gl.constexpr, GROUP_TILES: gl.constexpr, BN: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr, CREWS: gl.constexpr, LATE: gl.constexpr,
):  # fmt: skip
    sums = _work(
        WHO, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
        K_TILES, TURNS, GROUP_TILES, BN, DEPTH, STAGES, CREWS, LATE,
    )  # fmt: skip
    others.index(WHO - 1).store(sums[0])


@gluon.jit(do_not_specialize=["M"])
def _multiply_stream(
    tokens, codes, scales, scales32, out, partials, arrivals, M, N,
    K_TILES: gl.constexpr, TURNS: gl.constexpr, PARTS: gl.constexpr, GROUP_TILES: gl.constexpr,
    BN: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr, CREWS: gl.constexpr, REGISTERS: gl.constexpr,
    LATE: gl.constexpr,
):  # fmt: skip
    BM: gl.constexpr = tokens.block_type.shape[0]
    BLOCKS: gl.constexpr = BN // 64
    SLOTS: gl.constexpr = CREWS * STAGES
    if not LATE:
        gdc_launch_dependents()
    sums: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[4, 1], instr_shape=[16, 8])
    code_ring = gl.allocate_shared_memory(codes.dtype, [SLOTS * DEPTH * BLOCKS, 64, 32], codes.layout)
    token_ring = gl.allocate_shared_memory(tokens.dtype, [SLOTS * DEPTH, BM, 128], tokens.layout)
    # A scale per channel is applied at the end, and then this ring is not used.
    scale_ring = (
        gl.allocate_shared_memory(scales.dtype, [SLOTS * DEPTH, 1, BN], scales.layout) if GROUP_TILES > 0 else code_ring
    )
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
    fence_async_shared()
    tile = gl.program_id(0)
    part = gl.program_id(1)
    if CREWS == 1:
        alone: gl.constexpr = 0
        summed = _work(
            alone, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
            K_TILES, TURNS, GROUP_TILES, BN, DEPTH, STAGES, CREWS, LATE,
        )  # fmt: skip
    else:
        plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
        others = gl.allocate_shared_memory(gl.float32, [CREWS - 1, BN, BM], plain)
        zero: gl.constexpr = 0
        one: gl.constexpr = 1
        two: gl.constexpr = 2
        three: gl.constexpr = 3
        if CREWS == 2:
            summed = gl.warp_specialize(
                [
                (_work, (zero, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
                    K_TILES, TURNS, GROUP_TILES, BN, DEPTH, STAGES, CREWS, LATE,
                )),
                (_help, (one, others, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
                    K_TILES, TURNS, GROUP_TILES, BN, DEPTH, STAGES, CREWS, LATE,
                )),
                ],
                [4],
                [REGISTERS],
            )  # fmt: skip
        else:
            summed = gl.warp_specialize(
                [
                (_work, (zero, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
                    K_TILES, TURNS, GROUP_TILES, BN, DEPTH, STAGES, CREWS, LATE,
                )),
                (_help, (one, others, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
                    K_TILES, TURNS, GROUP_TILES, BN, DEPTH, STAGES, CREWS, LATE,
                )),
                (_help, (two, others, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
                    K_TILES, TURNS, GROUP_TILES, BN, DEPTH, STAGES, CREWS, LATE,
                )),
                (_help, (three, others, tokens, codes, scales, code_ring, token_ring, scale_ring, full, tile, part,
                    K_TILES, TURNS, GROUP_TILES, BN, DEPTH, STAGES, CREWS, LATE,
                )),
                ],
                [4, 4, 4],
                [REGISTERS, REGISTERS, REGISTERS],
            )  # fmt: skip
    total = summed[0]
    if CREWS > 1:
        for other in gl.static_range(CREWS - 1):
            total += others.index(other).load(sums)
    row = gl.arange(0, BN, layout=gl.SliceLayout(1, sums))
    token = gl.arange(0, BM, layout=gl.SliceLayout(0, sums))
    if PARTS == 1:
        _store(total, scales32, out, tile * BN + row, token, M, N, GROUP_TILES)
    else:
        within = row[:, None] * BM + token[None, :]
        partials += tile * (PARTS * BM * BN)
        gl.store(partials + part * (BM * BN) + within, total)
        # One thread counts for all: every thread's stores must precede its release.
        barrier()
        if gl.atomic_add(arrivals + tile, 1, sem="acq_rel") == PARTS - 1:
            # Added in the order of K, not of arrival, so that the same input gives the same bits. Read from L2 (.cg).
            total = gl.load(partials + within, cache_modifier=".cg")
            for other in gl.static_range(1, PARTS):
                total += gl.load(partials + other * (BM * BN) + within, cache_modifier=".cg")
            _store(total, scales32, out, tile * BN + row, token, M, N, GROUP_TILES)
            gl.store(arrivals + tile, 0)


@gluon.jit
def _store(total, scales32, out, n, token, M, N, GROUP_TILES: gl.constexpr):
    if GROUP_TILES == 0:
        total = total * gl.load(scales32 + n, n < N, other=0.0)[:, None]
    kept = (n < N)[:, None] & (token < M)[None, :]
    gl.store(out + token.to(gl.int64)[None, :] * N + n[:, None], total.to(gl.float16), kept)
