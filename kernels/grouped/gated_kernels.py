"""Triton kernels of the gated MLP: gate and up as one product with the activation in its epilogue; the gradient."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.common.devices import sm_count
from kernels.common.pdl import begin, end, launch_options, order_of
from kernels.grouped.group_layouts import Groups
from kernels.grouped.table import TABLE, Tile
from kernels.grouped.tile_schedule import halves, locate, require, room_of, rows_of, store_tile, tile_count, weight_of

#: Adjacent columns of gate, then of up, in a packed weight; together they are one tile of the product.
HALF = 128

GATED = TABLE.choice("tma.gated", Tile, "R G K H", upto="R")
#: Several programs may share a multiprocessor: one multiplies while the other waits for gate and up.
GATED_GRAD = TABLE.choice("tma.gated_grad", Tile, "R G K H", upto="R")


@triton.jit
def _gated(
    x, w_gate_up, hidden, gate_up, hidden_at, gate_up_at, scheduled, room, rows, G, K, N,
    KEEP: tl.constexpr, RAGGED: tl.constexpr, ORDER: tl.constexpr,
    BLOCK_M: tl.constexpr, HALF: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    begin(ORDER)
    tiles_n = N // HALF
    tiles = tile_count(scheduled, room, rows, G, RAGGED, BLOCK_M) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        group, band, row, left = locate(tile // tiles_n, scheduled, rows, G, RAGGED, BLOCK_M)
        column = tile % tiles_n * HALF
        total = tl.zeros((BLOCK_M, 2 * HALF), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(x.load([row, band * K + k]), w_gate_up.load([group * K + k, 2 * column]), total)
        gate, up = halves(total, BLOCK_M, 2 * HALF)
        column += band * N
        active = gate * tl.sigmoid(gate) * up
        store_tile(
            active.to(hidden.dtype), hidden, hidden_at, row, column, left, N,
            RAGGED, BLOCK_M, HALF,
        )  # fmt: skip
        if KEEP:
            store_tile(
                gate.to(gate_up.dtype), gate_up, gate_up_at, row, 2 * column, left, 2 * N,
                RAGGED, BLOCK_M, HALF,
            )  # fmt: skip
            store_tile(
                up.to(gate_up.dtype), gate_up, gate_up_at, row, 2 * column + HALF, left, 2 * N,
                RAGGED, BLOCK_M, HALF,
            )  # fmt: skip
    end(ORDER)


def gated(x: Tensor, w_gate_up: Tensor, groups: Groups, hidden: Tensor, gate_up: Tensor | None = None) -> None:
    """Write ``hidden = silu(x @ w_gate[g]) · (x @ w_up[g])``: one product, the activation in its epilogue.

    Args:
        x: [T, K], contiguous; so is every tensor.
        w_gate_up: [G, K, 2·H], packed: columns of gate and of up in turn, ``HALF`` of each.
        groups: the groups of the rows.
        hidden: [T, H], written.
        gate_up: [T, 2·H] for the product itself, packed like the weight; written if given.

    Raises:
        NotImplementedError: under the conditions that ``kernels.grouped.tma_kernels.product`` states.
    """
    (rows, K), G, H = x.shape, w_gate_up.shape[0], hidden.shape[1]
    config = GATED(x.device, rows // G, G, K, H)
    require(x, K=(K, config.BLOCK_K), H=(H, HALF))
    scheduled, bands = groups.scheduled, groups.bands
    programs, order = sm_count(x.device), order_of(x, follows=True)
    stored = hidden if gate_up is None else gate_up
    _gated[(programs,)](
        rows_of(x, bands, config.BLOCK_M, config.BLOCK_K), weight_of(w_gate_up, [config.BLOCK_K, 2 * HALF]),
        rows_of(hidden, bands, config.BLOCK_M, HALF), rows_of(stored, bands, config.BLOCK_M, HALF), hidden, stored,
        scheduled, room_of(scheduled), rows, G, K, H,
        KEEP=gate_up is not None, RAGGED=scheduled is not None, ORDER=order,
        BLOCK_M=config.BLOCK_M, HALF=HALF, BLOCK_K=config.BLOCK_K, PROGRAMS=programs,
        num_warps=config.num_warps, num_stages=config.num_stages, **launch_options(order),
    )  # fmt: skip


@triton.jit
def _gated_grad(
    grad, w_down, gate_up, grad_gate_up, scheduled, room, rows, G, K, N,
    RAGGED: tl.constexpr, ORDER: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    begin(ORDER)
    tiles_n = N // BLOCK_N
    tiles = tile_count(scheduled, room, rows, G, RAGGED, BLOCK_M) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        group, band, row, left = locate(tile // tiles_n, scheduled, rows, G, RAGGED, BLOCK_M)
        column = tile % tiles_n * BLOCK_N
        stride = 2 * N if RAGGED else G * 2 * N
        corner = row.to(tl.int64) * stride + band * (2 * N) + 2 * column
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(grad.load([row, band * K + k]), w_down.load([group * N + column, k]).T, total)
        # Four strips of columns in 16 bits, so that a thread's elements of all tensors fit in its registers.
        STRIP: tl.constexpr = BLOCK_N // 4
        west, east = halves(total.to(grad_gate_up.dtype.element_ty), BLOCK_M, BLOCK_N)
        strip_0, strip_1 = halves(west, BLOCK_M, BLOCK_N // 2)
        strip_2, strip_3 = halves(east, BLOCK_M, BLOCK_N // 2)
        _activation_grad(strip_0, gate_up, grad_gate_up, corner, 0, left, stride, BLOCK_M, HALF, STRIP)
        _activation_grad(strip_1, gate_up, grad_gate_up, corner, 1, left, stride, BLOCK_M, HALF, STRIP)
        _activation_grad(strip_2, gate_up, grad_gate_up, corner, 2, left, stride, BLOCK_M, HALF, STRIP)
        _activation_grad(strip_3, gate_up, grad_gate_up, corner, 3, left, stride, BLOCK_M, HALF, STRIP)
    end(ORDER)


@triton.jit
def _activation_grad(
    grad, gate_up, grad_gate_up, corner, INDEX: tl.constexpr, count, stride,
    BLOCK_M: tl.constexpr, HALF: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    """Store the gradients of gate and up for strip ``INDEX`` of a tile, from the gradient of the hidden layer."""
    FIRST: tl.constexpr = INDEX * STRIP // HALF * 2 * HALF + INDEX * STRIP % HALF
    rows = tl.arange(0, BLOCK_M)
    at = corner + FIRST + rows[:, None] * stride + tl.arange(0, STRIP)[None, :]
    inside = (rows < count)[:, None]
    gate = tl.load(gate_up + at, inside, 0.0).to(tl.float32)
    up = tl.load(gate_up + HALF + at, inside, 0.0).to(tl.float32)
    grad = grad.to(tl.float32)
    share = tl.sigmoid(gate)
    by_gate = grad * up * share * (1.0 + gate * (1.0 - share))
    tl.store(grad_gate_up + at, by_gate.to(grad_gate_up.dtype.element_ty), inside)
    tl.store(grad_gate_up + HALF + at, (grad * gate * share).to(grad_gate_up.dtype.element_ty), inside)


def gated_grad(
    grad: Tensor, w_down: Tensor, gate_up: Tensor, groups: Groups, grad_gate_up: Tensor,
    config: Tile | None = None, *, follows: bool = True,
) -> None:  # fmt: skip
    """Write the gradient of the packed product from the output's gradient, without storing the hidden layer's gradient.

    Args:
        grad: [T, K], contiguous; so is every tensor.
        w_down: [G, H, K].
        gate_up: [T, 2·H], as ``gated`` kept it.
        groups: the groups of the rows.
        grad_gate_up: [T, 2·H], written.
        config: tile; by default the table's.
        follows: as in ``kernels.grouped.tma_kernels.product``.

    Raises:
        NotImplementedError: under the conditions that ``kernels.grouped.tma_kernels.product`` states.
    """
    (rows, K), (G, H, _) = grad.shape, w_down.shape
    config = config or GATED_GRAD(grad.device, rows // G, G, K, H)
    require(grad, K=(K, config.BLOCK_K), H=(H, max(config.BLOCK_N, HALF)))
    scheduled, bands = groups.scheduled, groups.bands
    programs, order = config.programs * sm_count(grad.device), order_of(grad, follows)
    _gated_grad[(programs,)](
        rows_of(grad, bands, config.BLOCK_M, config.BLOCK_K), weight_of(w_down, [config.BLOCK_N, config.BLOCK_K]),
        gate_up, grad_gate_up, scheduled, room_of(scheduled), rows, G, K, H,
        RAGGED=scheduled is not None, ORDER=order, HALF=HALF,
        BLOCK_M=config.BLOCK_M, BLOCK_N=config.BLOCK_N, BLOCK_K=config.BLOCK_K, PROGRAMS=programs,
        num_warps=config.num_warps, num_stages=config.num_stages,
        maxnreg=min(255, 65536 // (config.programs * 32 * config.num_warps)), **launch_options(order),
    )  # fmt: skip
