"""Digest what a variant prepares offline, which a captured graph shows only as addresses."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from typing import Any

import torch


def values_digest(value: Any) -> str:
    """Return a digest of a prepared value that is equal in every process; "" if an object in it has an unknown class.

    Tensors count by dtype, shape, strides and contents.
    """
    total = hashlib.sha256()
    for part in _parts(value):
        if part is None:
            return ""
        total.update(part)
    return total.hexdigest()[:16]


def _parts(value: Any) -> Iterator[bytes | ctypes.Array[ctypes.c_ubyte] | None]:
    """Yield the bytes that decide a value, and ``None`` for an object of an unknown class."""
    if isinstance(value, torch.Tensor):
        yield f"tensor {value.dtype} {tuple(value.shape)} {value.stride()} ".encode()
        stored = value.detach().cpu().contiguous()
        if stored.nbytes:
            yield (ctypes.c_ubyte * stored.nbytes).from_address(stored.data_ptr())
    elif isinstance(value, dict):
        yield f"dict {list(value)!r} ".encode()
        for part in value.values():
            yield from _parts(part)
    elif isinstance(value, list | tuple):
        yield f"{len(value)} values ".encode()
        for part in value:
            yield from _parts(part)
    else:
        known = value is None or type(value) in (int, float, str, bool)
        yield f"{type(value).__name__} {value!r} ".encode() if known else None
