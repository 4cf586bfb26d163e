"""In which order programs take the tiles of a product, for Triton's kernels and for Gluon's."""

# Triton's compiler gives kernel arguments their types: annotations on them would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon


@triton.jit
def tile_of(index, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile; tiles go down columns of GROUP_M tile rows, so that neighbours share B."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = index // (GROUP_M * tiles_n)
    height = min(tiles_m - group * GROUP_M, GROUP_M)
    within = index % (GROUP_M * tiles_n)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


#: The same in Gluon, which makes its own of Triton's functions in this way too.
gluon_tile_of = gluon.jit(tile_of.fn)
