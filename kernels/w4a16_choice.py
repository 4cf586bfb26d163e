"""Which kernel, with which tile, is fastest for a product with int4 weights: what a sweep on an H200 found.

The weights are those of the suite's cases; docs/kernels/w4a16.md has the figures.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kernels.w4a16_planes import Tile
from kernels.w4a16_ring import Ring
from kernels.w4a16_stream import Stream

Way = Tile | Stream | Ring


class Weights(NamedTuple):
    """K × N codes; ``grouped`` if they have more than one scale per channel."""

    K: int
    N: int
    grouped: bool


#: Weights swept → (largest M, way) from few tokens to many; the last way serves every larger M.
WAYS: dict[Weights, tuple[tuple[int, Way], ...]] = {
    Weights(8192, 8192, grouped=True): (
        (8, Stream(8, 128, 1, 2, 1, 4, 128, late=True)),
        (16, Stream(16, 128, 1, 2, 1, 4, 128, late=True)),
        (32, Tile(32, 128, 8, 4, 2, scale_weights=True)),
        (64, Tile(64, 128, 8, 4, 2, scale_weights=True)),
        (128, Ring(128, 4, 2)),
        (256, Ring(128, 4)),
        (512, Ring(256, 2)),
    ),
    Weights(4096, 14336, grouped=True): (
        (8, Stream(8, 128, 1, 3, 1, 4, 128, late=True)),
        (16, Stream(16, 128, 1, 3, 1, 4, 128, late=True)),
        (32, Tile(32, 128, 8, 4, 2, scale_weights=True)),
        (64, Ring(64, 4)),
        (128, Ring(128, 4)),
        (256, Ring(256, 2)),
    ),
    Weights(4096, 4096, grouped=True): (
        (8, Stream(8, 128, 1, 3, 1, 4, 128, late=True)),
        (16, Stream(16, 64, 2, 4, 1, 2, 128, late=True)),
        (32, Tile(16, 128, 8, 4, 2, scale_weights=True)),
        (64, Tile(64, 64, 4, 4, 2, scale_weights=True)),
        (256, Tile(128, 64, 4, 4, 1, scale_weights=True)),
        (512, Ring(128, 4)),
        (1024, Ring(256, 2)),
    ),
    Weights(8192, 8192, grouped=False): (
        (8, Stream(8, 64, 1, 3, 1, 4, 64, late=True)),
        (16, Stream(16, 64, 1, 3, 1, 4, 64, late=True)),
        (32, Tile(32, 128, 8, 4, 2, scale_weights=True)),
        (64, Tile(64, 128, 8, 4, 2, scale_weights=True)),
        (128, Tile(128, 128, 8, 4, 1, scale_weights=True)),
        (256, Ring(128, 3)),
        (512, Ring(128, 4)),
        (4096, Ring(256, 2)),
    ),
}


def choose(M: int, weights: Weights) -> Way:
    """The way for M tokens and these weights: that of the swept weights nearest in size, of the next larger M.

    The next larger and not the nearest, because what a tile costs does not depend on how many of its tokens are used.
    """
    alike = [swept for swept in WAYS if swept.grouped == weights.grouped]
    nearest = min(alike, key=lambda swept: abs(math.log(swept.K * swept.N / (weights.K * weights.N))))
    return next((way for largest, way in WAYS[nearest] if largest >= M), WAYS[nearest][-1][1])
