"""The table of tuned configurations of the ``w4a16`` family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from kernels.common.tables import SearchSpace, Table

TABLE = Table("w4a16")

#: Sizes that conditions may use, in this order.
SIZES = "M K N grouped codes"


class Sizes(NamedTuple):
    """M tokens, a K × N weight with K · N ``codes``, and whether it has more than one scale per channel."""

    M: int
    K: int
    N: int
    grouped: bool
    codes: int


def sizes_of(x: torch.Tensor, scales32: torch.Tensor) -> Sizes:
    """Return the sizes of x [M, K] times a weight with scales [groups, N]."""
    (M, K), (groups, N) = x.shape, scales32.shape
    return Sizes(M, K, N, groups > 1, K * N)


def search_space(choice: str, configs: Sequence[Any], M: int, K: int, N: int, group: int | str) -> SearchSpace:
    """Return the search space of one case for ``lockstep tune``. A tuned row serves only weights of this size."""
    return SearchSpace(choice, {"M": M, "K": K, "N": N, "grouped": group != "channel", "codes": K * N}, configs)
