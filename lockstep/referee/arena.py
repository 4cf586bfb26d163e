"""Share tensors between two processes: one buffer that both map through an inherited file descriptor."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.referee import device_memory

#: Tensors start at multiples of this.
ALIGNMENT = 512


@dataclass(frozen=True)
class Slot:
    """A tensor's position in the buffer: its first byte, shape, strides in elements, and torch's name of the dtype."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the tensor at this position of a flat buffer of bytes."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return buffer.view(dtype).as_strided(self.shape, self.stride, self.offset // dtype.itemsize)

    @property
    def end(self) -> int:
        """Return the offset of the first byte after the tensor."""
        span = 1 + sum((count - 1) * stride for count, stride in zip(self.shape, self.stride, strict=True))
        size: int = getattr(torch, self.dtype).itemsize
        return self.offset + (span if 0 not in self.shape else 0) * size


@dataclass
class Layout:
    """Plans a shared buffer: ``place`` puts each tensor after the last one."""

    end: int = 0

    def place(self, like: torch.Tensor) -> Slot:
        """Reserve and return a position for a tensor with the shape, strides and dtype of ``like``."""
        slot = Slot(self.end, tuple(like.shape), tuple(like.stride()), str(like.dtype).removeprefix("torch."))
        self.end = -(-slot.end // ALIGNMENT) * ALIGNMENT
        return slot


class SharedBuffer:
    """Memory that another process can map. Call ``close`` at the end, when no tensor uses the memory any more.

    ``size``: minimum size of the memory in bytes.

    Attributes:
        bytes: the memory, uint8 and flat.
        address: the argument with which the other process calls ``attach``.
        fd: file descriptor that the other process must inherit.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        size = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        if device.type == "cuda":
            self._mapped, size, self.fd = device_memory.allocate(size, device)
            self.bytes = device_memory.flat(self._mapped, size, device)
        else:
            self._mapped, self.fd = 0, os.memfd_create("lockstep-arena")
            os.ftruncate(self.fd, size)
            self.bytes = torch.frombuffer(mmap.mmap(self.fd, size), dtype=torch.uint8)
        self.address = {"fd": self.fd, "size": size}

    def close(self) -> None:
        """Free the memory in this process."""
        os.close(self.fd)
        if self._mapped:
            device_memory.free(self._mapped, self.address["size"])


def attach(address: dict[str, int], device: torch.device) -> torch.Tensor:
    """Map the ``SharedBuffer`` with this address, which another process created; return its bytes, uint8 and flat."""
    fd, size = address["fd"], address["size"]
    if device.type == "cuda":
        return device_memory.flat(device_memory.imported(fd, size, device), size, device)
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)


def encode(value: Any, slot_of: Callable[[torch.Tensor], Slot]) -> Any:
    """Describe inputs or outputs as JSON for another process, with each tensor replaced by its position in a buffer.

    Raise ``NotImplementedError`` if a value is neither a tensor nor a number, text, ``None``, dict, list or tuple.
    """
    if isinstance(value, torch.Tensor):
        slot = slot_of(value)
        return {"tensor": [slot.offset, slot.shape, slot.stride, slot.dtype]}
    if isinstance(value, dict):
        return {"dict": [[name, encode(part, slot_of)] for name, part in value.items()]}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [encode(part, slot_of) for part in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise NotImplementedError(f"a {type(value).__name__} among the inputs cannot be passed to another process")


def decode(text: Any, buffer: torch.Tensor) -> Any:
    """Return the inputs or outputs that ``encode`` described, with tensors that are views of this buffer."""
    if not isinstance(text, dict):
        return text
    [(kind, parts)] = text.items()
    if kind == "tensor":
        offset, shape, stride, dtype = parts
        return Slot(offset, tuple(shape), tuple(stride), dtype).of(buffer)
    if kind == "dict":
        return {name: decode(part, buffer) for name, part in parts}
    items = [decode(part, buffer) for part in parts]
    return tuple(items) if kind == "tuple" else items
