"""The table of what was tuned for the ``linear`` family, shared by its modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.common.tables import SearchSpace, Table

TABLE = Table("linear")


def offer(choice: str, configs: Sequence[Any], M: int, K: int, N: int) -> SearchSpace:
    """What may be tried for one shape."""
    return SearchSpace(choice, {"M": M, "K": K, "N": N}, configs)
