"""The assignment of a matrix's rows to groups (``kernels.grouped`` describes the two layouts)."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from torch import Tensor

from kernels.grouped.tile_schedule import schedule_tiles


@dataclass(frozen=True)
class Groups:
    """The division of ``rows`` rows into ``count`` groups.

    Ragged groups also have ``offsets``, and may have ``host``, the offsets as ints.
    """

    rows: int
    count: int
    offsets: Tensor | None
    host: tuple[int, ...] | None

    @property
    def bands(self) -> int:
        """Return the number of bands of columns in TMA descriptors: ``count`` if groups are even, else 1."""
        return self.count if self.offsets is None else 1

    @functools.cached_property
    def scheduled(self) -> Tensor | None:
        """Return which rows each tile of the TMA kernels has, computed at first use; None if groups are even."""
        return None if self.offsets is None else schedule_tiles(self.offsets, self.rows, self.count)

    def of(self, matrix: Tensor, group: int) -> Tensor:
        """Return the rows of one group, a view [rows of the group, columns]."""
        if self.offsets is None:
            return matrix.view(-1, self.count, matrix.shape[1])[:, group]
        if self.host is None:
            raise ValueError("host_offsets must be given for a loop over ragged groups: offsets are on the GPU")
        return matrix[self.host[group] : self.host[group + 1]]

    def batch(self, matrix: Tensor) -> Tensor:
        """Return every group's rows as a strided view [G, B, columns]; nothing is copied."""
        if self.offsets is not None:
            raise NotImplementedError("bmm needs groups of equal size: use another backend for ragged groups")
        return matrix.view(-1, self.count, matrix.shape[1]).transpose(0, 1)
