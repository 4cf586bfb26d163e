"""Order in which programs take the tiles of a product, for Triton and Gluon kernels."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon


@triton.jit
def tile_of(index, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return first row and column of tile ``index``. ``GROUP_M`` consecutive tiles lie in a column and share B."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = index // (GROUP_M * tiles_n)
    height = min(tiles_m - group * GROUP_M, GROUP_M)
    within = index % (GROUP_M * tiles_n)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


#: The same function for Gluon kernels.
gluon_tile_of = gluon.jit(tile_of.fn)
