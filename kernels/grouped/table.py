"""The table of tuned configurations of the ``grouped`` family, and the tile of its Triton kernels."""

from __future__ import annotations

from typing import NamedTuple

from kernels.common.tables import Table


class Tile(NamedTuple):
    """Tile of one program and its compile options. ``programs`` persistent programs share a multiprocessor."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int
    programs: int = 1


TABLE = Table("grouped")
