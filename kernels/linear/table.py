"""The table of what was tuned for the ``linear`` family, shared by its modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.common.tables import Offer, Table

TABLE = Table("linear")


def offer(choice: str, configs: Sequence[Any], M: int, K: int, N: int) -> Offer:
    """What may be tried for one shape."""
    return Offer(choice, {"M": M, "K": K, "N": N}, configs)
