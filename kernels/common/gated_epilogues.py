"""Epilogues of ``warp_specialized_product`` for a gated MLP: activation of packed gate and up, and its gradient.

The sigmoid is ``0.5 + 0.5 · tanh(gate / 2)`` with ``tanh.approx.f32``. That is one instruction of the special function
units. An exponential and a reciprocal would be two, and both epilogues wait for these units. The relative error of tanh
is at most 2^-11 (PTX ISA). So the error of the sigmoid is at most 2^-12, and that of silu(gate) at most |gate| · 2^-12.
Rounding gate to 16 bits costs more: 2^-8 · |gate| in bfloat16, 2^-11 · |gate| in float16. For a large negative gate,
whose silu is near zero, the relative error of silu is large.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.language.nvidia.hopper import tma as gluon_tma

from kernels.common.gluon_compat import tma_load, tma_store
from kernels.common.warp_group_tiles import halves, quarters, store, tile_of


@gluon.jit
def _sigmoid(gate):
    half = gl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [0.5 * gate], dtype=gl.float32, is_pure=True, pack=1
    )
    return 0.5 + 0.5 * half


@gluon.jit
def store_gated(
    total, hidden, gate_up, group, row, column, N, buffers, count, HALF: gl.constexpr, KEEP: gl.constexpr
):  # fmt: skip
    """Store silu(gate) · up for 128 columns; ``KEEP`` also stores gate and up. Return the count of stores so far."""
    gate, up = halves(total)
    active = gate * _sigmoid(gate) * up
    if KEEP:
        gate_west, gate_east = halves(gate)
        up_west, up_east = halves(up)
        packed = group * N + column
        store(gate_west, gate_up, row, packed, buffers, count, HALF)
        store(gate_east, gate_up, row, packed + 64, buffers, count + 1, HALF)
        store(up_west, gate_up, row, packed + 128, buffers, count + 2, HALF)
        store(up_east, gate_up, row, packed + 192, buffers, count + 3, HALF)
        count += 4
    west, east = halves(active)
    at = group * (N // 2) + column // 2
    store(west, hidden, row, at, buffers, count, HALF)
    store(east, hidden, row, at + 64, buffers, count + 1, HALF)
    return count + 2


@gluon.jit
def _packed_column(group, column, N, piece: gl.constexpr):
    """Return the column at which a 64-column piece of gate begins. 128 columns of gate and 128 of up alternate."""
    return group * 2 * N + 2 * column + piece // 2 * 256 + piece % 2 * 64


@gluon.jit
def feed_gate_up(gate_up, ring, full, free, tiles, M, N, BAND: gl.constexpr):
    """Load gate and up of each tile while the tile's product runs: 64 × 64 of each, for the warp groups in turn."""
    SLOTS: gl.constexpr = full.shape[0] // 2
    count = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        group, row, column = tile_of(tile, M, N, BAND)
        for piece in gl.static_range(4):
            at = _packed_column(group, column, N, piece)
            for half in gl.static_range(2):
                slot = half * SLOTS + count % SLOTS
                mbarrier.wait(free.index(slot), (count // SLOTS & 1) ^ 1)
                mbarrier.expect(full.index(slot), 2 * gate_up.block_type.nbytes)
                tma_load(gate_up, [row + 64 * half, at], full.index(slot), ring.index(2 * slot))
                tma_load(gate_up, [row + 64 * half, at + 128], full.index(slot), ring.index(2 * slot + 1))
            count += 1


@gluon.jit
def store_gated_grad(
    total, target, group, row, column, N, ring, full, free, count, HALF: gl.constexpr
):  # fmt: skip
    """Store the gradients of gate and up for a tile of the hidden layer's gradient. Return the new ``count``."""
    SLOTS: gl.constexpr = full.shape[0] // 2
    pieces = quarters(total)
    for piece in gl.static_range(4):
        slot = HALF * SLOTS + count % SLOTS
        at = _packed_column(group, column, N, piece)
        _store_piece(pieces[piece], target, row, at, ring, full, slot, count // SLOTS & 1)
        count += 1
        if piece % SLOTS == SLOTS - 1:
            # Free each slot once its two stores have been read, so that its next loads are issued together.
            for freed in gl.static_range(SLOTS):
                gluon_tma.store_wait(2 * (SLOTS - 1 - freed))
                mbarrier.arrive(free.index(HALF * SLOTS + (count + freed) % SLOTS))
    return count


@gluon.jit
def _store_piece(grad, target, row, column, ring, full, slot, phase):
    """Overwrite gate and up in shared memory with their gradients, and store the gradients from shared memory."""
    mbarrier.wait(full.index(slot), phase)
    # The other backends store the gradient of the hidden layer, which rounds it: round it here too.
    grad = grad.to(target.dtype).to(gl.float32)
    gate_at = ring.index(2 * slot)
    up_at = ring.index(2 * slot + 1)
    gate = gate_at.load(grad.type.layout).to(gl.float32)
    up = up_at.load(grad.type.layout).to(gl.float32)
    share = _sigmoid(gate)
    of_gate = grad * up * share * (1.0 + gate * (1.0 - share))
    of_up = grad * gate * share
    gate_at.store(of_gate.to(target.dtype))
    up_at.store(of_up.to(target.dtype))
    fence_async_shared()
    tma_store(target, [row, column], gate_at)
    tma_store(target, [row, column + 128], up_at)
