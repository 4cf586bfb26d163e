"""Triton kernels of the ``grouped`` family; ``kernels.grouped`` checks arguments and calls them.

Every kernel serves both row layouts (see ``kernels.grouped``): row r of group g is row ``r · G + g`` of the matrix
when groups are even, and row ``offsets[g] + r`` when they are ragged.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.grouped.table import TABLE, Tile

#: Tiles by R, the average rows of a group.
PRODUCT = TABLE.choice("triton.product", Tile, "R", upto="R")
GRAD_WEIGHT = TABLE.choice("triton.grad_weight", Tile, "R", upto="R")

#: Elements for each program of the elementwise kernels: 8 a thread, one 16-byte access.
ELEMENTS = 1024


@triton.jit
def locate(slot, offsets, rows, G, RAGGED: tl.constexpr, BLOCK_M: tl.constexpr, GROUPS: tl.constexpr):
    """Return of row tile ``slot``: group, first row in the group, rows of the group, matrix row of its row 0, row step.

    Ragged groups have at most ``rows / BLOCK_M + G`` tiles: the host knows this bound without reading the offsets. A
    slot beyond the last tile gets a group without rows.
    """
    if RAGGED:
        index = tl.arange(0, GROUPS)
        begins = tl.load(offsets + index, index < G, rows)
        ends = tl.load(offsets + index + 1, index < G, rows)
        tiles = tl.cdiv(ends - begins, BLOCK_M)
        past = tl.cumsum(tiles, 0) <= slot
        group = tl.sum(past.to(tl.int32), 0)
        begin = tl.sum(tl.where(index == group, begins, 0), 0)
        end = tl.sum(tl.where(index == group, ends, 0), 0)
        first = (slot - tl.sum(tl.where(past, tiles, 0), 0)) * BLOCK_M
        count = end - begin
        step = 1
    else:
        tiles_m = tl.cdiv(rows // G, BLOCK_M)
        group = slot // tiles_m
        first = (slot % tiles_m) * BLOCK_M
        count = rows // G
        begin = group
        step = G
    return group, first, count, begin, step


@triton.jit
def _product(
    a, weight, a_too, weight_too, out, offsets, rows, N, K, G,
    weight_group, weight_k, weight_n,
    PAIR: tl.constexpr, RAGGED: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Column tiles innermost: programs that run together need few row tiles of x and one group's weight.
    tiles_n = tl.cdiv(N, BLOCK_N)
    group, first, count, base, step = locate(tl.program_id(0) // tiles_n, offsets, rows, G, RAGGED, BLOCK_M, GROUPS)
    if first >= count:
        return
    first_column = (tl.program_id(0) % tiles_n) * BLOCK_N
    row_ok = first + tl.arange(0, BLOCK_M) < count
    column_ok = first_column + tl.arange(0, BLOCK_N) < N
    # 64-bit products only for the tile's corner: offsets inside a tile fit in 32 bits and take half the registers.
    corner = base.to(tl.int64) + first.to(tl.int64) * step
    tile_rows = tl.arange(0, BLOCK_M) * step
    depth = tl.arange(0, BLOCK_K)
    columns = tl.arange(0, BLOCK_N)
    a_at = tile_rows[:, None] * K + depth[None, :]
    weight_at = depth[:, None] * weight_k + columns[None, :] * weight_n
    corner_at = group.to(tl.int64) * weight_group + first_column.to(tl.int64) * weight_n
    a_from = a + corner * K
    weight_from = weight + corner_at
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    total = _add_product(total, a_from, weight_from, a_at, weight_at, row_ok, column_ok, depth, K, weight_k, BLOCK_K)
    if PAIR:
        a_from = a_too + corner * K
        weight_from = weight_too + corner_at
        total = _add_product(
            total, a_from, weight_from, a_at, weight_at, row_ok, column_ok, depth, K, weight_k, BLOCK_K
        )
    out_at = tile_rows[:, None] * N + columns[None, :]
    tl.store(
        out + corner * N + first_column + out_at, total.to(out.dtype.element_ty), row_ok[:, None] & column_ok[None, :]
    )


@triton.jit
def _add_product(
    total, a_from, weight_from, a_at, weight_at, row_ok, column_ok, depth, K, weight_k, BLOCK_K: tl.constexpr
):  # fmt: skip
    for start in range(0, K, BLOCK_K):
        inside = depth < K - start
        a_tile = tl.load(a_from + a_at, row_ok[:, None] & inside[None, :], 0.0)
        weight_tile = tl.load(weight_from + weight_at, inside[:, None] & column_ok[None, :], 0.0)
        total = tl.dot(a_tile, weight_tile, total)
        a_from += BLOCK_K
        weight_from += BLOCK_K * weight_k
    return total


def product(
    a: Tensor, weight: Tensor, offsets: Tensor | None, out: Tensor, too: tuple[Tensor, Tensor] | None = None
) -> None:
    """Write ``out = a @ weight`` group by group, plus ``too[0] @ too[1]`` of the same shapes.

    Args:
        a: [T, K], contiguous.
        weight: [G, K, N], any strides.
        offsets: int32 [G + 1], or None for even groups.
        out: [T, N], contiguous, written.
        too: a second pair of operands, whose product is added before the store.
    """
    (rows, K), (G, _, N) = a.shape, weight.shape
    tile = PRODUCT(a.device, triton.cdiv(rows, G))
    a_too, weight_too = too or (a, weight)
    _product[(_slots(rows, G, offsets, tile.BLOCK_M) * triton.cdiv(N, tile.BLOCK_N),)](
        a, weight, a_too, weight_too, out, offsets, rows, N, K, G, *weight.stride(),
        PAIR=too is not None, RAGGED=offsets is not None, GROUPS=triton.next_power_of_2(G),
        BLOCK_M=tile.BLOCK_M, BLOCK_N=tile.BLOCK_N, BLOCK_K=tile.BLOCK_K,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


def _slots(rows: int, groups: int, offsets: Tensor | None, block: int) -> int:
    """Return the number of row tiles; for ragged groups an upper bound, because the host cannot read the offsets."""
    return rows // block + groups if offsets is not None else groups * triton.cdiv(rows // groups, block)


@triton.jit
def _grad_weight(
    x, grad, out, offsets, rows, K, N, G,
    RAGGED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(K, BLOCK_M) * tiles_n
    group = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    first_k = (tile // tiles_n) * BLOCK_M
    first_n = (tile % tiles_n) * BLOCK_N
    if RAGGED:
        base = tl.load(offsets + group)
        count = tl.load(offsets + group + 1) - base
        step = 1
    else:
        base = group
        count = rows // G
        step = G
    ks = tl.arange(0, BLOCK_M)
    ns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    k_ok = first_k + ks < K
    n_ok = first_n + ns < N
    x_at = depth[:, None] * (step * K) + ks[None, :]
    grad_at = depth[:, None] * (step * N) + ns[None, :]
    x_from = x + base.to(tl.int64) * K + first_k
    grad_from = grad + base.to(tl.int64) * N + first_n
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, count, BLOCK_K):
        inside = depth < count - start
        x_tile = tl.load(x_from + x_at, inside[:, None] & k_ok[None, :], 0.0)
        grad_tile = tl.load(grad_from + grad_at, inside[:, None] & n_ok[None, :], 0.0)
        total = tl.dot(tl.trans(x_tile), grad_tile, total)
        x_from += BLOCK_K * step * K
        grad_from += BLOCK_K * step * N
    out += (group.to(tl.int64) * K + first_k) * N + first_n
    tl.store(out + ks[:, None] * N + ns[None, :], total.to(out.dtype.element_ty), k_ok[:, None] & n_ok[None, :])


def grad_weight(x: Tensor, grad: Tensor, offsets: Tensor | None, out: Tensor) -> None:
    """Write ``out[g] = x[rows of g].T @ grad[rows of g]``: [T, K] and [T, N], contiguous, into [G, K, N]."""
    G, K, N = out.shape
    tile = GRAD_WEIGHT(x.device, triton.cdiv(x.shape[0], G))
    _grad_weight[(G * triton.cdiv(K, tile.BLOCK_M) * triton.cdiv(N, tile.BLOCK_N),)](
        x, grad, out, offsets, x.shape[0], K, N, G,
        RAGGED=offsets is not None,
        BLOCK_M=tile.BLOCK_M, BLOCK_N=tile.BLOCK_N, BLOCK_K=tile.BLOCK_K,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


@triton.jit
def _activate(gate, up, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gate_tile = tl.load(gate + at, at < size, 0.0).to(tl.float32)
    up_tile = tl.load(up + at, at < size, 0.0).to(tl.float32)
    tl.store(out + at, (gate_tile * tl.sigmoid(gate_tile) * up_tile).to(out.dtype.element_ty), at < size)


@triton.jit
def _activate_grad(gate, up, grad, grad_gate, grad_up, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gate_tile = tl.load(gate + at, at < size, 0.0).to(tl.float32)
    up_tile = tl.load(up + at, at < size, 0.0).to(tl.float32)
    grad_tile = tl.load(grad + at, at < size, 0.0).to(tl.float32)
    share = tl.sigmoid(gate_tile)
    of_gate = grad_tile * up_tile * share * (1.0 + gate_tile * (1.0 - share))
    of_up = grad_tile * gate_tile * share
    tl.store(grad_gate + at, of_gate.to(grad_gate.dtype.element_ty), at < size)
    tl.store(grad_up + at, of_up.to(grad_up.dtype.element_ty), at < size)


def activate(gate: Tensor, up: Tensor, out: Tensor) -> None:
    """Write ``out = silu(gate) · up``, elementwise on contiguous tensors of one shape."""
    size = gate.numel()
    _activate[(triton.cdiv(size, ELEMENTS),)](gate, up, out, size, BLOCK=ELEMENTS, num_warps=4)


def activate_grad(gate: Tensor, up: Tensor, grad: Tensor, grad_gate: Tensor, grad_up: Tensor) -> None:
    """Write the gradients of ``activate`` by ``gate`` and ``up``; ``grad`` is the gradient of its result."""
    size = gate.numel()
    _activate_grad[(triton.cdiv(size, ELEMENTS),)](
        gate,
        up,
        grad,
        grad_gate,
        grad_up,
        size,
        BLOCK=ELEMENTS,
        num_warps=4,
    )
