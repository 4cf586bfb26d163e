"""Identify the content of tensors, such as indices, loop bounds and tables: it may decide what a kernel does.

A tensor on the CPU is identified by its bytes. A tensor on "meta" has no bytes, so it is identified by the operators
that made it, unless a trace already shows these operators as steps. A trace has no steps for the import of modules and
for the first call of a variant.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

#: Digest of what made each storage, by identity. A weak reference prevents reuse of the identity by another storage.
_made: dict[int, tuple[StorageWeakRef | None, str]] = {}


def content_of(tensor: torch.Tensor) -> str:
    """Return a digest of the whole storage of a tensor on the CPU or on "meta"; "" if a trace shows its content."""
    storage = tensor.untyped_storage()
    if tensor.device.type == "meta":
        return _made.get(storage._cdata, (None, ""))[1]
    with _disable_current_modes():
        content = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        return _digest(content)


def made_by(description: str | bytes, result: Any) -> None:
    """Record which operator made the tensors of a result, because the operator identifies their content.

    Args:
        description: description of the operator and its arguments.
        result: a tensor, or several tensors.
    """
    for tensor in result if isinstance(result, list | tuple) else [result]:
        if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
            storage = tensor.untyped_storage()
            content = description.encode() if isinstance(description, str) else description
            _made[storage._cdata] = (StorageWeakRef(storage), _digest(content))


def _digest(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
