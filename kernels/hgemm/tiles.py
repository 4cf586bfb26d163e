"""Tiles of the ``hgemm`` family, and the choice of a tile for a shape."""

from __future__ import annotations

from typing import NamedTuple

import triton
from torch import Tensor

from kernels.common.devices import sm_count
from kernels.common.tables import Table


class Tile(NamedTuple):
    """Tile of the output and its compile options. ``group`` tile rows share their B tiles in L2."""

    m: int
    n: int
    k: int
    group: int
    num_warps: int
    num_stages: int


#: Largest first. Without a row in the table, the first tile is used that has enough output tiles to fill ``FULL`` of
#: the multiprocessors.
TILES = (
    Tile(128, 256, 64, 8, 8, 4),
    Tile(128, 128, 64, 8, 8, 4),
    Tile(128, 64, 64, 8, 4, 5),
    Tile(64, 64, 64, 8, 4, 6),
    Tile(64, 32, 64, 8, 4, 6),
)
FULL = 0.75

#: Tiles that ``lockstep tune`` tries. The last one requests all of K at once at 512³, where it was the fastest of 60 on
#: an H100.
TRIED = (*TILES, Tile(64, 32, 256, 8, 4, 3))

TABLE = Table("hgemm")
#: Tile of "pipelined", "tma" and "gluon" at a shape.
TILE = TABLE.maybe("tile", Tile, "M N K")


def tile_for(a: Tensor, b: Tensor) -> Tile:
    """Return the tile for ``a @ b``: the table's, or else the first of ``TILES`` that occupies enough of the GPU."""
    tuned = TILE(a.device, a.shape[0], b.shape[-1], a.shape[1])
    if tuned is not None:
        return tuned
    fill = FULL * sm_count(a.device)
    for tile in TILES:
        if triton.cdiv(a.shape[0], tile.m) * triton.cdiv(b.shape[-1], tile.n) >= fill:
            return tile
    return TILES[-1]
