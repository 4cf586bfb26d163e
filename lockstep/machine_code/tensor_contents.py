"""What tensors hold, as far as it decides what a kernel does: indices, loop bounds, tables.

A tensor on the CPU has its bytes. A tensor on "meta" has none; it stands for the operators that made it, where no step
of a trace shows them: while a module is imported, and in the first call, which fills what the code keeps.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

#: Storages by identity, with the digest of what made them. A weak reference keeps the identity from any other storage.
_made: dict[int, tuple[StorageWeakRef | None, str]] = {}


def content_of(tensor: torch.Tensor) -> str:
    """Digest of what a tensor on the CPU or on "meta" holds, of its whole storage; "" where a trace shows it."""
    storage = tensor.untyped_storage()
    if tensor.device.type == "meta":
        return _made.get(storage._cdata, (None, ""))[1]
    with _disable_current_modes():
        content = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        return _digest(content)


def made_by(description: str | bytes, result: Any) -> None:
    """Remember what made the tensors of a result.

    Args:
        description: of the operator and its arguments.
        result: a tensor, or several.
    """
    for tensor in result if isinstance(result, list | tuple) else [result]:
        if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
            storage = tensor.untyped_storage()
            content = description.encode() if isinstance(description, str) else description
            _made[storage._cdata] = (StorageWeakRef(storage), _digest(content))


def _digest(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
