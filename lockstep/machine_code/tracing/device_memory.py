"""Count the device memory that a call on tensors without content allocates, and how much of it stays alive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_iter


class Allocations:
    """The storages that one call allocates on the device, in the order of its operators.

    Attributes:
        peak: maximum bytes of these storages alive at once.
    """

    def __init__(self) -> None:
        self.count = self.peak = 0
        # A weak reference prevents reuse of the identity by another storage, without keeping the storage alive.
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def note(self, arguments: Any, result: Any) -> None:
        """Record what an operator allocated: the storages of ``result`` that ``arguments`` do not have."""
        known = {tensor.untyped_storage()._cdata for tensor in _tensors(arguments)}
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            fresh = storage._cdata not in known and storage._cdata not in self._made
            if fresh and tensor.device.type == "meta" and storage.nbytes():
                self._made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
                self.count += 1
                self.peak = max(self.peak, sum(self.live.values()))

    def __contains__(self, identity: int) -> bool:
        return identity in self._made

    @property
    def live(self) -> dict[int, int]:
        """Return the bytes of each storage that is still alive, by the storage's identity."""
        return {identity: size for identity, (reference, size) in self._made.items() if not reference.expired()}


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    return (part for part in tree_iter(value) if isinstance(part, torch.Tensor))
