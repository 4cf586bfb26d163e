"""Variant "warp_specialized" of ``hgemm``: ``kernels.common.warp_specialized_product`` with one group."""

from __future__ import annotations

from torch import Tensor

from kernels.common.pdl import FIRST
from kernels.common.tables import SearchSpace
from kernels.common.warp_specialized_product import COLUMNS, TILE_CONFIGS, TileConfig, described, launch
from kernels.hgemm.tiles import TABLE

#: Tile config of "warp_specialized".
TILE_CONFIG = TABLE.choice("warp_specialized", TileConfig, "M N K")

#: Tile rows taken together, so that programs which run at once share more of both operands in L2.
BAND = 8


def run_specialized(config: TileConfig, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write ``out = a @ b`` by the kernel of "warp_specialized". The caller has checked every argument.

    Raises:
        NotImplementedError: widths that are not multiples of the tile's.
    """
    (M, K), N = a.shape, b.shape[1]
    if N % COLUMNS or K % config.k:
        raise NotImplementedError(
            f"warp_specialized needs N to be a multiple of {COLUMNS} and K a multiple of {config.k}, got N={N}, K={K}"
        )
    left, right = described(a, (M, K), (64, config.k)), described(b, (K, N), (config.k, COLUMNS))
    launch(left, right, described(out, (M, N), (64, 64)), (1, M, N, K), config, FIRST)


def tile_configs_at(M: int, N: int, K: int) -> SearchSpace:
    """Return the tile configs that ``lockstep tune`` tries: all, with tile rows taken in bands of ``BAND``."""
    return SearchSpace(
        "warp_specialized", {"M": M, "N": N, "K": K}, [config._replace(band=BAND) for config in TILE_CONFIGS.values()]
    )
