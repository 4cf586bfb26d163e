"""The TMA kernels of the ``grouped`` family: the tile of each program, and how a tile is loaded and stored.

Even groups are addressed as one matrix [B, G · columns]. Group g is a band of columns, and the descriptor's bounds mask
rows beyond the last row. A tile must not cross a band, so widths must be multiples of the tile's width. Ragged groups
are bands of rows: a tile that reaches into the next group computes rows that it does not store.

Tiles are scheduled group by group with columns innermost. Programs that run together share one group's weight, which
stays in L2, and few rows of x. For ragged groups a small launch first writes the rows of each tile
(``schedule_tiles``). A search of the offsets in the kernels would keep Triton from flattening their loops.

Launches overlap, in the order that ``kernels.common.pdl`` describes.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.common.devices import capability
from kernels.common.pdl import begin, launch_options, order_of

#: Rows of a tile, in every kernel that reads scheduled tiles.
BLOCK_M = 128

#: Fields of a scheduled tile of ragged groups: its group, its first row, the group's rows from the first row on.
FIELDS = 3

#: Tiles that a program of ``_deal`` schedules. The kernel's name is in recorded histories, so it stays.
TILES_PER_PROGRAM = 128


@triton.jit
def _deal(offsets, scheduled, G, TILES, ORDER: tl.constexpr, BLOCK_M: tl.constexpr, SLOTS: tl.constexpr):
    begin(ORDER)
    slot = tl.program_id(0) * SLOTS + tl.arange(0, SLOTS)
    tiles = 0
    for group in range(0, G):
        base = tl.load(offsets + group)
        count = tl.load(offsets + group + 1) - base
        first = (slot - tiles) * BLOCK_M
        mine = (slot >= tiles) & (first < count) & (slot < TILES)
        tl.store(scheduled + slot * 3, group, mine)
        tl.store(scheduled + slot * 3 + 1, base + first, mine)
        tl.store(scheduled + slot * 3 + 2, count - first, mine)
        tiles += tl.cdiv(count, BLOCK_M)
    if tl.program_id(0) == 0:
        tl.store(scheduled + TILES * 3, tiles)


def schedule_tiles(offsets: Tensor, rows: int, groups: int) -> Tensor:
    """Return the rows of each tile of ``BLOCK_M`` rows, one tile after another.

    Args:
        offsets: int32 [groups + 1], ascending from 0 to ``rows``.
        rows: the number of rows of all groups.
        groups: the number of groups.

    Returns:
        int32 [tiles + 1, FIELDS], with room for the largest possible number of tiles. The GPU writes the actual number
        into the last row.
    """
    tiles = rows // BLOCK_M + groups
    scheduled = offsets.new_empty(tiles + 1, FIELDS)
    order = order_of(offsets, follows=True)
    _deal[(triton.cdiv(tiles, TILES_PER_PROGRAM),)](
        offsets, scheduled, groups, tiles, ORDER=order, BLOCK_M=BLOCK_M, SLOTS=TILES_PER_PROGRAM,
        num_warps=4, **launch_options(order),
    )  # fmt: skip
    return scheduled


def room_of(scheduled: Tensor | None) -> int:
    """Return the index of the row of ``scheduled`` (from ``schedule_tiles``) that holds the number of tiles."""
    return 0 if scheduled is None else len(scheduled) - 1


@triton.jit
def tile_count(scheduled, room, rows, G, RAGGED: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return the number of row tiles of all groups."""
    return tl.load(scheduled + room * 3) if RAGGED else G * tl.cdiv(rows // G, BLOCK_M)


@triton.jit
def locate(slot, scheduled, rows, G, RAGGED: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return (group, band of columns, first row, number of the group's rows from that row on) of a row tile."""
    if RAGGED:
        group = tl.load(scheduled + slot * 3)
        band = 0
        row = tl.load(scheduled + slot * 3 + 1)
        left = tl.load(scheduled + slot * 3 + 2)
    else:
        tiles_m = tl.cdiv(rows // G, BLOCK_M)
        group = slot // tiles_m
        band = group
        row = (slot % tiles_m) * BLOCK_M
        left = rows // G - row
    return group, band, row, left


@triton.jit
def halves(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the left and the right columns of a tile; no data moves between threads."""
    return tl.reshape(tile, (BLOCK_M, 2, BLOCK_N // 2)).permute(0, 2, 1).split()


@triton.jit
def store_tile(
    tile, target, pointer, row, column, left, stride,
    RAGGED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Store a tile: by TMA for even groups, with a mask for ragged groups, because a tile may extend beyond its group.

    Every tile of ragged groups is masked: a choice for each tile breaks Triton's loop flattening (3.6, 3.7.1).
    """
    if RAGGED:
        rows = tl.arange(0, BLOCK_M)
        at = row.to(tl.int64) * stride + column
        inside = (rows < left)[:, None]
        tl.store(pointer + at + rows[:, None] * stride + tl.arange(0, BLOCK_N)[None, :], tile, inside)
    else:
        target.store([row, column], tile)


def require(tensor: Tensor, **widths: tuple[int, int]) -> None:
    """Raise NotImplementedError unless elements have 16 bits, the GPU has TMA, and widths are multiples of blocks."""
    if tensor.element_size() != 2:
        raise NotImplementedError(f"tma needs 16-bit elements, got {tensor.dtype}")
    if tensor.device.type != "cpu" and capability(tensor.device) < (9, 0):
        raise NotImplementedError("tma needs a GPU with TMA, compute capability 9.0 or later")
    for name, (width, block) in widths.items():
        if width % block:
            raise NotImplementedError(f"tma needs {name} to be a multiple of {block}, got {width}")


def rows_of(matrix: Tensor, bands: int, rows: int, columns: int) -> TensorDescriptor:
    """Return a TMA descriptor of a matrix [T, columns] as [T / bands, bands · columns]; see ``Groups.bands``."""
    total, width = matrix.shape[0] // bands, matrix.shape[1] * bands
    return TensorDescriptor(matrix, [total, width], [width, 1], [rows, columns])


def weight_of(weight: Tensor, block: list[int]) -> TensorDescriptor:
    """Return a TMA descriptor of a weight [G, rows, columns], viewed as one matrix of G · rows rows."""
    groups, rows, columns = weight.shape
    return TensorDescriptor(weight, [groups * rows, columns], [columns, 1], block)
