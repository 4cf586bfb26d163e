"""The last rung of the ``hgemm`` ladder: ``kernels.common.warp_specialized`` with one group."""

from __future__ import annotations

from torch import Tensor

from kernels.common.pdl import FIRST
from kernels.common.tables import Offer
from kernels.common.warp_specialized import COLUMNS, CUTS, Cut, described, launch
from kernels.hgemm.tiles import TABLE

#: Cut of "warp_specialized".
CUT = TABLE.choice("warp_specialized", Cut, "M N K")

#: Tile rows taken together, so that what runs at once shares more of both operands in L2.
BAND = 8


def run_specialized(cut: Cut, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Launch it; every argument has been checked.

    Raises:
        NotImplementedError: widths that are no multiples of the tile's.
    """
    (M, K), N = a.shape, b.shape[1]
    if N % COLUMNS or K % cut.k:
        raise NotImplementedError(
            f"warp_specialized needs N by {COLUMNS} and K by {cut.k}, as its tiles are, got K={K}, N={N}"
        )
    left, right = described(a, (M, K), (64, cut.k)), described(b, (K, N), (cut.k, COLUMNS))
    launch(left, right, described(out, (M, N), (64, 64)), (1, M, N, K), cut, FIRST)


def cuts_at(M: int, N: int, K: int) -> Offer:
    """Every cut with bands of tiles."""
    return Offer("warp_specialized", {"M": M, "N": N, "K": K}, [cut._replace(band=BAND) for cut in CUTS.values()])
