"""Persistent products of the ``grouped`` family with operands loaded by TMA (``kernels.grouped.tile_schedule``)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.common.devices import sm_count
from kernels.common.pdl import begin, end, launch_options, order_of
from kernels.grouped.group_layouts import Groups
from kernels.grouped.table import TABLE, Tile
from kernels.grouped.tile_schedule import halves, locate, require, room_of, rows_of, store_tile, tile_count, weight_of

PRODUCT = TABLE.choice("tma.product", Tile, "R G K N", upto="R")
GRAD_WEIGHT = TABLE.choice("tma.grad_weight", Tile, "R G K N", upto="R")


@triton.jit
def _load_weight(weight, group, k, n, K, N, TRANSPOSED: tl.constexpr):
    """Load the [k, n] tile of a group's weight, which is stored [K, N], or [N, K] if transposed."""
    return weight.load([group * N + n, k]).T if TRANSPOSED else weight.load([group * K + k, n])


@triton.jit
def _product(
    a, weight, target, pointer, scheduled, room, rows, G, K, N,
    TRANSPOSED: tl.constexpr, RAGGED: tl.constexpr, ORDER: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    begin(ORDER)
    tiles_n = N // BLOCK_N
    tiles = tile_count(scheduled, room, rows, G, RAGGED, BLOCK_M) * tiles_n
    # Flattened, so that the loads of the next tile overlap the store of this tile.
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        group, band, row, left = locate(tile // tiles_n, scheduled, rows, G, RAGGED, BLOCK_M)
        column = tile % tiles_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            weight_tile = _load_weight(weight, group, k, column, K, N, TRANSPOSED)
            total = tl.dot(a.load([row, band * K + k]), weight_tile, total)
        # In two halves: the store is staged in shared memory, and half the buffer leaves room for a fourth stage.
        west, east = halves(total, BLOCK_M, BLOCK_N)
        store_tile(
            west.to(target.dtype), target, pointer, row, band * N + column, left, N,
            RAGGED, BLOCK_M, BLOCK_N // 2,
        )  # fmt: skip
        store_tile(
            east.to(target.dtype), target, pointer, row, band * N + column + BLOCK_N // 2, left, N,
            RAGGED, BLOCK_M, BLOCK_N // 2,
        )  # fmt: skip
    end(ORDER)


def product(a: Tensor, weight: Tensor, groups: Groups, out: Tensor, *, follows: bool = True) -> None:
    """Write ``out = a @ weight`` group by group.

    Args:
        a: [T, K], contiguous.
        weight: [G, K, N], contiguous or the transpose of a contiguous [G, N, K].
        groups: the groups of the rows.
        out: [T, N], contiguous, written.
        follows: whether the preceding launch writes an operand of this launch; see ``kernels.common.pdl``.

    Raises:
        NotImplementedError: not 16-bit elements, widths that are not multiples of the tile's, or a GPU without TMA.
    """
    (rows, K), (G, _, N) = a.shape, weight.shape
    config = PRODUCT(a.device, rows // G, G, K, N)
    require(a, K=(K, config.BLOCK_K), N=(N, config.BLOCK_N))
    transposed = weight.stride(1) == 1
    block = [config.BLOCK_N, config.BLOCK_K] if transposed else [config.BLOCK_K, config.BLOCK_N]
    scheduled, bands = groups.scheduled, groups.bands
    programs, order = sm_count(a.device), order_of(a, follows)
    _product[(programs,)](
        rows_of(a, bands, config.BLOCK_M, config.BLOCK_K),
        weight_of(weight.transpose(1, 2) if transposed else weight, block),
        rows_of(out, bands, config.BLOCK_M, config.BLOCK_N // 2), out, scheduled, room_of(scheduled), rows, G, K, N,
        TRANSPOSED=transposed, RAGGED=scheduled is not None, ORDER=order,
        BLOCK_M=config.BLOCK_M, BLOCK_N=config.BLOCK_N, BLOCK_K=config.BLOCK_K, PROGRAMS=programs,
        num_warps=config.num_warps, num_stages=config.num_stages, **launch_options(order),
    )  # fmt: skip


@triton.jit
def _grad_weight(
    x, grad, left_target, right_target, x_at, grad_at, offsets, rows, G, K, N, PAIR: tl.constexpr,
    RAGGED: tl.constexpr, ORDER: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    begin(ORDER)
    tiles_n = N // BLOCK_N
    tiles = K // BLOCK_M * tiles_n
    for tile in tl.range(tl.program_id(0), G * tiles, PROGRAMS, flatten=not RAGGED):
        group = tile // tiles
        first_k = tile % tiles // tiles_n * BLOCK_M
        first_n = tile % tiles_n * BLOCK_N
        start = 0
        stop = rows // G
        band = group
        if RAGGED:
            start = tl.load(offsets + group)
            stop = start + (tl.load(offsets + group + 1) - start) // BLOCK_K * BLOCK_K
            band = 0
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for row in range(start, stop, BLOCK_K):
            x_tile = x.load([row, band * K + first_k])
            total = tl.dot(x_tile.T, grad.load([row, band * N + first_n]), total)
        if RAGGED:
            # Load the last rows with a mask: TMA would load rows of the next group.
            left = tl.load(offsets + group + 1) - stop
            if left > 0:
                depth = tl.arange(0, BLOCK_K)
                ks = stop.to(tl.int64) * K + first_k + depth[:, None] * K + tl.arange(0, BLOCK_M)[None, :]
                ns = stop.to(tl.int64) * N + first_n + depth[:, None] * N + tl.arange(0, BLOCK_N)[None, :]
                x_tile = tl.load(x_at + ks, (depth < left)[:, None], 0.0)
                total = tl.dot(x_tile.T, tl.load(grad_at + ns, (depth < left)[:, None], 0.0), total)
        left_half, right_half = halves(total, BLOCK_M, BLOCK_N)
        row = group * K + first_k
        if PAIR:
            left_target.store([row, first_n // 2], left_half.to(left_target.dtype))
            right_target.store([row, first_n // 2], right_half.to(right_target.dtype))
        else:
            left_target.store([row, first_n], left_half.to(left_target.dtype))
            right_target.store([row, first_n + BLOCK_N // 2], right_half.to(right_target.dtype))
    end(ORDER)


def grad_weight(
    x: Tensor, grad: Tensor, groups: Groups, out: Tensor, up: Tensor | None = None, *, follows: bool = True
) -> None:
    """Write ``out[g] = x[rows of g].T @ grad[rows of g]``: [T, K] and [T, N], contiguous, into [G, K, N].

    With ``up``, grad is packed [T, 2·N] (see ``kernels.grouped.gated_kernels``), and ``out`` and ``up`` are the
    gradients of both weights. All other arguments are as in ``product``.

    Raises:
        NotImplementedError: under the conditions that ``product`` states.
    """
    (G, K, _), width = out.shape, grad.shape[1]
    config, bands = GRAD_WEIGHT(x.device, len(x) // G, G, K, width), groups.bands
    require(x, K=(K, config.BLOCK_M), N=(width, config.BLOCK_N))
    programs, order = sm_count(x.device), order_of(x, follows)
    _grad_weight[(programs,)](
        rows_of(x, bands, config.BLOCK_K, config.BLOCK_M), rows_of(grad, bands, config.BLOCK_K, config.BLOCK_N),
        *(weight_of(target, [config.BLOCK_M, config.BLOCK_N // 2]) for target in (out, out if up is None else up)),
        x, grad, groups.offsets, x.shape[0], G, K, width,
        PAIR=up is not None, RAGGED=groups.offsets is not None, ORDER=order,
        BLOCK_M=config.BLOCK_M, BLOCK_N=config.BLOCK_N, BLOCK_K=config.BLOCK_K, PROGRAMS=programs,
        num_warps=config.num_warps, num_stages=config.num_stages, **launch_options(order),
    )  # fmt: skip
