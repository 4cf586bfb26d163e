"""Persistent kernels of the ``grouped`` family whose operands travel by TMA (Hopper on).

Even groups are addressed as one matrix [B, G · columns]: group g is a band of columns, and the descriptor's bounds
cut the last rows. So no tile may reach across a band, which is why widths must be multiples of the tile's. Ragged
groups are bands of rows: a tile that reaches into the next group computes rows that it does not store.

Tiles are dealt group by group with columns innermost: what runs together shares one group's weight, which stays
in L2, and few rows of x.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.devices import capability, sm_count
from kernels.grouped_triton import locate


class Tile(NamedTuple):
    """Tile of one program and how it is compiled."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int


#: Columns of gate, then of up, that lie side by side in a packed weight: together one tile of the product.
HALF = 128

PRODUCT = Tile(128, 2 * HALF, 64, 8, 4)
#: Two programs share a multiprocessor, so that one multiplies while the other waits for gate and up.
GATED_GRAD = Tile(128, HALF, 64, 8, 3)
GRAD_WEIGHT = Tile(128, 2 * HALF, 64, 8, 4)


@triton.jit
def _row_tiles(offsets, rows, G, RAGGED: tl.constexpr, BLOCK_M: tl.constexpr, GROUPS: tl.constexpr):
    """Row tiles of all groups."""
    if RAGGED:
        index = tl.arange(0, GROUPS)
        begins = tl.load(offsets + index, index < G, 0)
        ends = tl.load(offsets + index + 1, index < G, 0)
        count = tl.sum(tl.cdiv(ends - begins, BLOCK_M), 0)
    else:
        count = G * tl.cdiv(rows // G, BLOCK_M)
    return count


@triton.jit
def _halves(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The left and the right columns of a tile; nothing moves between threads."""
    return tl.reshape(tile, (BLOCK_M, 2, BLOCK_N // 2)).permute(0, 2, 1).split()


@triton.jit
def _store_tile(
    tile, target, pointer, row, column, first, count, base, step, stride,
    RAGGED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Store a tile by TMA, except where it would run over the end of a ragged group."""
    if RAGGED:
        if first + BLOCK_M <= count:
            target.store([row, column], tile)
        else:
            rows = tl.arange(0, BLOCK_M)
            at = (base + first * step).to(tl.int64) * stride + column
            inside = (first + rows < count)[:, None]
            tl.store(pointer + at + rows[:, None] * (step * stride) + tl.arange(0, BLOCK_N)[None, :], tile, inside)
    else:
        target.store([row, column], tile)


@triton.jit
def _load_weight(weight, group, k, n, K, N, TRANSPOSED: tl.constexpr):
    """The [k, n] tile of a group's weight, stored [K, N], or [N, K] if transposed."""
    return weight.load([group * N + n, k]).T if TRANSPOSED else weight.load([group * K + k, n])


@triton.jit
def _product(
    a, weight, target, pointer, offsets, rows, G, K, N,
    TRANSPOSED: tl.constexpr, RAGGED: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    tiles_n = N // BLOCK_N
    tiles = _row_tiles(offsets, rows, G, RAGGED, BLOCK_M, GROUPS) * tiles_n
    # Flattened: the loads of the next tile overlap the store of this one. Not ragged: Triton 3.7's pass breaks on the
    # reductions in ``locate``.
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=not RAGGED):
        group, first, count, base, step = locate(tile // tiles_n, offsets, rows, G, RAGGED, BLOCK_M, GROUPS)
        column = tile % tiles_n * BLOCK_N
        row = first
        band = group
        if RAGGED:
            row = base + first
            band = 0
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            weight_tile = _load_weight(weight, group, k, column, K, N, TRANSPOSED)
            total = tl.dot(a.load([row, band * K + k]), weight_tile, total)
        # In two halves: the store is staged in shared memory, and half as much leaves room for a fourth stage.
        left, right = _halves(total, BLOCK_M, BLOCK_N)
        _store_tile(
            left.to(target.dtype), target, pointer, row, band * N + column, first, count, base, step, N,
            RAGGED, BLOCK_M, BLOCK_N // 2,
        )  # fmt: skip
        _store_tile(
            right.to(target.dtype), target, pointer, row, band * N + column + BLOCK_N // 2, first, count, base, step, N,
            RAGGED, BLOCK_M, BLOCK_N // 2,
        )  # fmt: skip


def product(a: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor | None, out: torch.Tensor) -> None:
    """``out = a @ weight`` group by group.

    Args:
        a: [T, K], contiguous.
        weight: [G, K, N], contiguous or the transpose of a contiguous [G, N, K].
        offsets: int32 [G + 1], or None for even groups.
        out: [T, N], contiguous, written.

    Raises:
        NotImplementedError: not 16-bit elements, widths that are no multiples of the tile's, or a GPU without TMA.
    """
    (rows, K), (G, _, N) = a.shape, weight.shape
    cut = PRODUCT
    _require(a, K=(K, cut.BLOCK_K), N=(N, cut.BLOCK_N))
    transposed = weight.stride(1) == 1
    block = [cut.BLOCK_N, cut.BLOCK_K] if transposed else [cut.BLOCK_K, cut.BLOCK_N]
    programs = sm_count(a.device)
    _product[(programs,)](
        _rows(a, G, offsets, cut.BLOCK_M, cut.BLOCK_K),
        _weight(weight.transpose(1, 2) if transposed else weight, block),
        _rows(out, G, offsets, cut.BLOCK_M, cut.BLOCK_N // 2), out, offsets, rows, G, K, N,
        TRANSPOSED=transposed, RAGGED=offsets is not None, GROUPS=triton.next_power_of_2(G),
        BLOCK_M=cut.BLOCK_M, BLOCK_N=cut.BLOCK_N, BLOCK_K=cut.BLOCK_K, PROGRAMS=programs,
        num_warps=cut.num_warps, num_stages=cut.num_stages,
    )  # fmt: skip


@triton.jit
def _gated(
    x, w_gate_up, hidden, gate_up, hidden_at, gate_up_at, offsets, rows, G, K, N,
    KEEP: tl.constexpr, RAGGED: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK_M: tl.constexpr, HALF: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    tiles_n = N // HALF
    tiles = _row_tiles(offsets, rows, G, RAGGED, BLOCK_M, GROUPS) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=not RAGGED):
        group, first, count, base, step = locate(tile // tiles_n, offsets, rows, G, RAGGED, BLOCK_M, GROUPS)
        column = tile % tiles_n * HALF
        row = first
        band = group
        if RAGGED:
            row = base + first
            band = 0
        total = tl.zeros((BLOCK_M, 2 * HALF), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(x.load([row, band * K + k]), w_gate_up.load([group * K + k, 2 * column]), total)
        gate, up = _halves(total, BLOCK_M, 2 * HALF)
        column += band * N
        if KEEP:
            _store_tile(
                gate.to(gate_up.dtype), gate_up, gate_up_at, row, 2 * column, first, count, base, step, 2 * N,
                RAGGED, BLOCK_M, HALF,
            )  # fmt: skip
            _store_tile(
                up.to(gate_up.dtype), gate_up, gate_up_at, row, 2 * column + HALF, first, count, base, step, 2 * N,
                RAGGED, BLOCK_M, HALF,
            )  # fmt: skip
        active = gate * tl.sigmoid(gate) * up
        _store_tile(
            active.to(hidden.dtype), hidden, hidden_at, row, column, first, count, base, step, N,
            RAGGED, BLOCK_M, HALF,
        )  # fmt: skip


def gated(
    x: torch.Tensor,
    w_gate_up: torch.Tensor,
    offsets: torch.Tensor | None,
    hidden: torch.Tensor,
    gate_up: torch.Tensor | None,
) -> None:
    """``hidden = silu(x @ w_gate[g]) · (x @ w_up[g])``: one product, the activation in its epilogue.

    Args:
        x: [T, K], contiguous; so is every tensor.
        w_gate_up: [G, K, 2·H], packed: columns of gate and of up in turn, ``HALF`` of each.
        offsets: int32 [G + 1], or None for even groups.
        hidden: [T, H], written.
        gate_up: [T, 2·H] for the product itself, packed like the weight; written if given.

    Raises:
        NotImplementedError: as ``product``.
    """
    (rows, K), G, H = x.shape, w_gate_up.shape[0], hidden.shape[1]
    cut = PRODUCT
    _require(x, K=(K, cut.BLOCK_K), H=(H, HALF))
    programs = sm_count(x.device)
    kept = hidden if gate_up is None else gate_up
    _gated[(programs,)](
        _rows(x, G, offsets, cut.BLOCK_M, cut.BLOCK_K), _weight(w_gate_up, [cut.BLOCK_K, 2 * HALF]),
        _rows(hidden, G, offsets, cut.BLOCK_M, HALF), _rows(kept, G, offsets, cut.BLOCK_M, HALF), hidden, kept,
        offsets, rows, G, K, H,
        KEEP=gate_up is not None, RAGGED=offsets is not None, GROUPS=triton.next_power_of_2(G),
        BLOCK_M=cut.BLOCK_M, HALF=HALF, BLOCK_K=cut.BLOCK_K, PROGRAMS=programs,
        num_warps=cut.num_warps, num_stages=cut.num_stages,
    )  # fmt: skip


@triton.jit
def _gated_grad(
    grad, w_down, gate_up, grad_gate_up, offsets, rows, G, K, N,
    RAGGED: tl.constexpr, GROUPS: tl.constexpr, HALF: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n = N // HALF
    group, first, count, base, step = locate(tl.program_id(0) // tiles_n, offsets, rows, G, RAGGED, BLOCK_M, GROUPS)
    if first >= count:
        return
    column = tl.program_id(0) % tiles_n * HALF
    row = first
    band = group
    if RAGGED:
        row = base + first
        band = 0
    total = tl.zeros((BLOCK_M, HALF), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(grad.load([row, band * K + k]), w_down.load([group * N + column, k]).T, total)
    corner = (base + first * step).to(tl.int64) * (2 * N) + 2 * column
    # In four strips of columns and 16 bits, so that a thread's share of all tensors fits in 128 registers.
    STRIP: tl.constexpr = HALF // 4
    left, right = _halves(total.to(grad_gate_up.dtype.element_ty), BLOCK_M, HALF)
    first_strip, second_strip = _halves(left, BLOCK_M, HALF // 2)
    third_strip, fourth_strip = _halves(right, BLOCK_M, HALF // 2)
    stride = step * 2 * N
    _activation_grad(first_strip, gate_up + corner, grad_gate_up + corner, count - first, stride, BLOCK_M, HALF, STRIP)
    corner += STRIP
    _activation_grad(second_strip, gate_up + corner, grad_gate_up + corner, count - first, stride, BLOCK_M, HALF, STRIP)
    corner += STRIP
    _activation_grad(third_strip, gate_up + corner, grad_gate_up + corner, count - first, stride, BLOCK_M, HALF, STRIP)
    corner += STRIP
    _activation_grad(fourth_strip, gate_up + corner, grad_gate_up + corner, count - first, stride, BLOCK_M, HALF, STRIP)


@triton.jit
def _activation_grad(
    grad, gate_up, grad_gate_up, count, stride, BLOCK_M: tl.constexpr, HALF: tl.constexpr, STRIP: tl.constexpr
):
    rows = tl.arange(0, BLOCK_M)
    at = rows[:, None] * stride + tl.arange(0, STRIP)[None, :]
    inside = (rows < count)[:, None]
    gate = tl.load(gate_up + at, inside, 0.0).to(tl.float32)
    up = tl.load(gate_up + HALF + at, inside, 0.0).to(tl.float32)
    grad = grad.to(tl.float32)
    share = tl.sigmoid(gate)
    by_gate = grad * up * share * (1.0 + gate * (1.0 - share))
    tl.store(grad_gate_up + at, by_gate.to(grad_gate_up.dtype.element_ty), inside)
    tl.store(grad_gate_up + HALF + at, (grad * gate * share).to(grad_gate_up.dtype.element_ty), inside)


def gated_grad(
    grad: torch.Tensor,
    w_down: torch.Tensor,
    gate_up: torch.Tensor,
    offsets: torch.Tensor | None,
    grad_gate_up: torch.Tensor,
) -> None:
    """Gradient of the packed product from that of the output; the hidden layer's gradient is never stored.

    Args:
        grad: [T, K], contiguous; so is every tensor.
        w_down: [G, H, K].
        gate_up: [T, 2·H], as ``gated`` kept it.
        offsets: int32 [G + 1], or None for even groups.
        grad_gate_up: [T, 2·H], written.

    Raises:
        NotImplementedError: as ``product``.
    """
    (rows, K), (G, H, _) = grad.shape, w_down.shape
    cut = GATED_GRAD
    _require(grad, K=(K, cut.BLOCK_K), H=(H, HALF))
    slots = rows // cut.BLOCK_M + G if offsets is not None else G * triton.cdiv(rows // G, cut.BLOCK_M)
    _gated_grad[(slots * (H // HALF),)](
        _rows(grad, G, offsets, cut.BLOCK_M, cut.BLOCK_K), _weight(w_down, [HALF, cut.BLOCK_K]),
        gate_up, grad_gate_up, offsets, rows, G, K, H,
        RAGGED=offsets is not None, GROUPS=triton.next_power_of_2(G), HALF=HALF,
        BLOCK_M=cut.BLOCK_M, BLOCK_K=cut.BLOCK_K, num_warps=cut.num_warps, num_stages=cut.num_stages,
        maxnreg=65536 // (2 * 32 * cut.num_warps),
    )  # fmt: skip


@triton.jit
def _grad_weight(
    x, grad, left_target, right_target, x_at, grad_at, offsets, rows, G, K, N, PAIR: tl.constexpr,
    RAGGED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    tiles_n = N // BLOCK_N
    tiles = K // BLOCK_M * tiles_n
    for tile in tl.range(tl.program_id(0), G * tiles, PROGRAMS, flatten=not RAGGED):
        group = tile // tiles
        first_k = tile % tiles // tiles_n * BLOCK_M
        first_n = tile % tiles_n * BLOCK_N
        begin = 0
        end = rows // G
        band = group
        if RAGGED:
            begin = tl.load(offsets + group)
            end = begin + (tl.load(offsets + group + 1) - begin) // BLOCK_K * BLOCK_K
            band = 0
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for row in range(begin, end, BLOCK_K):
            x_tile = x.load([row, band * K + first_k])
            total = tl.dot(x_tile.T, grad.load([row, band * N + first_n]), total)
        if RAGGED:
            # The last rows by masked loads: TMA would bring in the next group's.
            left = tl.load(offsets + group + 1) - end
            if left > 0:
                depth = tl.arange(0, BLOCK_K)
                ks = end.to(tl.int64) * K + first_k + depth[:, None] * K + tl.arange(0, BLOCK_M)[None, :]
                ns = end.to(tl.int64) * N + first_n + depth[:, None] * N + tl.arange(0, BLOCK_N)[None, :]
                x_tile = tl.load(x_at + ks, (depth < left)[:, None], 0.0)
                total = tl.dot(x_tile.T, tl.load(grad_at + ns, (depth < left)[:, None], 0.0), total)
        left_half, right_half = _halves(total, BLOCK_M, BLOCK_N)
        row = group * K + first_k
        if PAIR:
            left_target.store([row, first_n // 2], left_half.to(left_target.dtype))
            right_target.store([row, first_n // 2], right_half.to(right_target.dtype))
        else:
            left_target.store([row, first_n], left_half.to(left_target.dtype))
            right_target.store([row, first_n + BLOCK_N // 2], right_half.to(right_target.dtype))


def grad_weight(
    x: torch.Tensor,
    grad: torch.Tensor,
    offsets: torch.Tensor | None,
    out: torch.Tensor,
    up: torch.Tensor | None = None,
) -> None:
    """``out[g] = x[rows of g].T @ grad[rows of g]``: [T, K] and [T, N], contiguous, into [G, K, N].

    With ``up``, grad is packed [T, 2·N] (see ``gated``) and ``out`` and ``up`` are the gradients of both weights.

    Raises:
        NotImplementedError: as ``product``.
    """
    (G, K, _), width = out.shape, grad.shape[1]
    cut = GRAD_WEIGHT
    _require(x, K=(K, cut.BLOCK_M), N=(width, cut.BLOCK_N))
    programs = sm_count(x.device)
    _grad_weight[(programs,)](
        _rows(x, G, offsets, cut.BLOCK_K, cut.BLOCK_M), _rows(grad, G, offsets, cut.BLOCK_K, cut.BLOCK_N),
        *(_weight(target, [cut.BLOCK_M, HALF]) for target in (out, out if up is None else up)),
        x, grad, offsets, x.shape[0], G, K, width, PAIR=up is not None, RAGGED=offsets is not None,
        BLOCK_M=cut.BLOCK_M, BLOCK_N=cut.BLOCK_N, BLOCK_K=cut.BLOCK_K, PROGRAMS=programs,
        num_warps=cut.num_warps, num_stages=cut.num_stages,
    )  # fmt: skip


def _require(tensor: torch.Tensor, **widths: tuple[int, int]) -> None:
    """Raise unless TMA can serve 16-bit elements of these widths on this GPU."""
    if tensor.element_size() != 2:
        raise NotImplementedError(f"tma is cut for 16-bit elements, got {tensor.dtype}")
    if tensor.device.type != "cpu" and capability(tensor.device) < (9, 0):
        raise NotImplementedError("tma needs a GPU with TMA, compute capability 9.0 or later")
    for name, (width, block) in widths.items():
        if width % block:
            raise NotImplementedError(f"tma needs {name} to be a multiple of {block}, got {width}")


def _rows(matrix: torch.Tensor, groups: int, offsets: torch.Tensor | None, rows: int, columns: int) -> TensorDescriptor:
    """Descriptor of [T, columns] rows, or of [B, G · columns] where groups are even."""
    total, width = matrix.shape
    if offsets is None:
        total, width = total // groups, width * groups
    return TensorDescriptor(matrix, [total, width], [width, 1], [rows, columns])


def _weight(weight: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Descriptor of a [G, rows, columns] weight as one matrix of G · rows rows."""
    groups, rows, columns = weight.shape
    return TensorDescriptor(weight, [groups * rows, columns], [columns, 1], block)
