"""The table of tuned configurations of the ``linear`` family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.common.tables import SearchSpace, Table

TABLE = Table("linear")


def search_space(choice: str, configs: Sequence[Any], M: int, K: int, N: int) -> SearchSpace:
    """Return the configurations that ``lockstep tune`` tries for one shape."""
    return SearchSpace(choice, {"M": M, "K": K, "N": N}, configs)
