"""Tiles of warp-specialized kernels: where a tile lies, and how a warp group stores it."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared
from triton.experimental.gluon.language.nvidia.hopper import tma as gluon_tma

from kernels.common.gluon_compat import tma_store


@gluon.jit
def tile_of(tile, M, N, BAND: gl.constexpr):
    """Return (group, first row within the group, first column) of a 128 × 256 tile.

    Without bands, columns are innermost. With bands, rows are innermost within ``BAND`` tile rows: the tiles that run
    together then form a squarer part of the output.
    """
    tiles_n = N // 256
    tiles_m = (M + 127) // 128
    in_group = tiles_m * tiles_n
    group = tile // in_group
    inside = tile % in_group
    if BAND == 0:
        row = inside // tiles_n
        column = inside % tiles_n
    else:
        band = inside // (BAND * tiles_n)
        height = min(tiles_m - band * BAND, BAND)
        within = inside % (BAND * tiles_n)
        row = band * BAND + within % height
        column = within // height
    return group, row * 128, column * 256


@gluon.jit
def scheduled_tile(tile, scheduled, N):
    """Return (group, first row, first column, number of the group's rows from that row on) of a tile of ragged groups.

    ``scheduled`` is as ``kernels.grouped.tile_schedule`` describes it.
    """
    entry = scheduled + tile // (N // 256) * 3
    return gl.load(entry), gl.load(entry + 1), tile % (N // 256) * 256, gl.load(entry + 2)


@gluon.jit
def halves(total):
    """Return the left and the right half of a tile's columns; no data moves between threads."""
    shape: gl.constexpr = (total.shape[0], 2, total.shape[1] // 2)
    return gl.split(gl.permute(gl.reshape(total, shape), (0, 2, 1)))


@gluon.jit
def quarters(total):
    """Return the four quarters of a tile's columns, from left to right; no data moves between threads."""
    west, east = halves(total)
    first, second = halves(west)
    third, fourth = halves(east)
    return first, second, third, fourth


@gluon.jit
def store(piece, target, row, column, buffers, count, HALF: gl.constexpr):
    """Store a 64 × 64 piece through the warp group's next buffer, once TMA has read the buffer's previous content."""
    BUFFERS: gl.constexpr = buffers.shape[0] // 2
    gluon_tma.store_wait(BUFFERS - 1)
    buffer = buffers.index(HALF * BUFFERS + count % BUFFERS)
    buffer.store(piece.to(target.dtype))
    fence_async_shared()
    tma_store(target, [row, column], buffer)


@gluon.jit
def store_quarters(total, target, other, row, column, buffers, count, HALF: gl.constexpr, PAIR: gl.constexpr):
    """Store 64 × 256 in four pieces. If ``PAIR``, the last two go to ``other``, at the first two pieces' columns."""
    first, second, third, fourth = quarters(total)
    store(first, target, row, column, buffers, count, HALF)
    store(second, target, row, column + 64, buffers, count + 1, HALF)
    if PAIR:
        store(third, other, row, column, buffers, count + 2, HALF)
        store(fourth, other, row, column + 64, buffers, count + 3, HALF)
    else:
        store(third, target, row, column + 128, buffers, count + 2, HALF)
        store(fourth, target, row, column + 192, buffers, count + 3, HALF)


@gluon.jit
def store_rows(total, pointer, row, column, rows, N):
    """Store the first ``rows`` rows of 64 × 256 at a row and column of a matrix of N columns, without TMA."""
    first, second, third, fourth = quarters(total)
    corner = pointer + row.to(gl.int64) * N + column
    _store_rows(first, corner, rows, N)
    _store_rows(second, corner + 64, rows, N)
    _store_rows(third, corner + 128, rows, N)
    _store_rows(fourth, corner + 192, rows, N)


@gluon.jit
def _store_rows(piece, corner, rows, N):
    row = gl.expand_dims(gl.arange(0, piece.shape[0], gl.SliceLayout(1, piece.type.layout)), 1)
    column = gl.expand_dims(gl.arange(0, piece.shape[1], gl.SliceLayout(0, piece.type.layout)), 0)
    gl.store(corner + row * N + column, piece.to(corner.dtype.element_ty), row < rows)
