"""The table of what was tuned for the ``w4a16`` family, shared by its modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from kernels.common.tables import SearchSpace, Table

TABLE = Table("w4a16")

#: What conditions may speak of, in this order.
SIZES = "M K N grouped codes"


class Sizes(NamedTuple):
    """M tokens, a K × N weight of so many ``codes``, and whether it has more than one scale per channel."""

    M: int
    K: int
    N: int
    grouped: bool
    codes: int


def sizes_of(x: torch.Tensor, scales32: torch.Tensor) -> Sizes:
    """Sizes of x [M, K] times a weight with scales [groups, N]."""
    (M, K), (groups, N) = x.shape, scales32.shape
    return Sizes(M, K, N, groups > 1, K * N)


def offer(choice: str, configs: Sequence[Any], M: int, K: int, N: int, group: int | str) -> SearchSpace:
    """What may be tried for one case of the suite; what is tuned holds for these weights alone."""
    return SearchSpace(choice, {"M": M, "K": K, "N": N, "grouped": group != "channel"}, configs)
