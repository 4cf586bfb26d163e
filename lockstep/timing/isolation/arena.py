"""Share tensors between two processes: one buffer that both map, with canary bytes around each tensor.

On a CPU the buffer is an anonymous file (memfd), on a GPU a separate allocation that is passed through CUDA IPC.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

#: Tensors start at multiples of this. At least as many canary bytes lie before, between and after the tensors.
ALIGNMENT = 512

#: An allocation of this size fills a whole segment of torch's caching allocator (``kMinLargeAlloc`` is 10 MiB). So the
#: other process cannot map other tensors of this process.
_SEGMENT = 32 << 20


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
    """Plans a shared buffer: ``place`` puts each tensor after the last one, and leaves a gap for canary bytes."""

    slots: list[Slot] = field(default_factory=list)
    end: int = ALIGNMENT

    def place(self, like: torch.Tensor) -> Slot:
        """Reserve and return a position for a tensor with the shape, strides and dtype of ``like``."""
        slot = Slot(self.end, tuple(like.shape), tuple(like.stride()), str(like.dtype).removeprefix("torch."))
        self.slots.append(slot)
        self.end = -(-slot.end // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        return slot


class SharedBuffer:
    """Memory that other processes can map. Call ``close`` at the end.

    Args:
        size: minimum size of the memory in bytes.

    Attributes:
        bytes: the memory, uint8 and flat.
        address: the argument with which another process calls ``attach``.
        fds: file descriptors that the other process must inherit.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        size = -(-max(size, _SEGMENT if device.type == "cuda" else 1) // ALIGNMENT) * ALIGNMENT
        self.fds: tuple[int, ...] = ()
        if device.type == "cuda":
            self.bytes = torch.empty(size, dtype=torch.uint8, device=device)
            shared = self.bytes.untyped_storage()._share_cuda_()
            self.address: dict[str, Any] = {
                "cuda": [part.hex() if isinstance(part, bytes) else part for part in shared],
                "bytes": [isinstance(part, bytes) for part in shared],
            }
        else:
            fd = os.memfd_create("lockstep-arena")
            os.ftruncate(fd, size)
            self.fds = (fd,)
            self.bytes = _mapped(fd, size)
            self.address = {"fd": fd, "size": size}

    def close(self) -> None:
        """Close the memory's file descriptor. The memory is freed once no tensor uses it."""
        for fd in self.fds:
            os.close(fd)


class Arena:
    """Tensors in shared memory, with canary bytes that reveal writes outside the tensors.

    Args:
        layout: the positions of the tensors in the memory.
        shared: the memory, at least ``layout.end`` bytes.
    """

    def __init__(self, layout: Layout, shared: SharedBuffer) -> None:
        self.buffer = shared.bytes
        self._canary_bytes = _canary_bytes(layout).to(self.buffer.device)
        count = self._canary_bytes.numel()
        # A byte of a short gap is listed twice and gets two values, so the last one is read back for the comparison.
        self.buffer[self._canary_bytes] = torch.randint(256, (count,), dtype=torch.uint8, device=self.buffer.device)
        self._canaries = self.buffer[self._canary_bytes]

    def intact(self) -> bool:
        """Return whether no canary byte has changed, that is, nothing was written outside the tensors."""
        return torch.equal(self.buffer[self._canary_bytes], self._canaries)


def attach(address: dict[str, Any]) -> torch.Tensor:
    """Map the ``SharedBuffer`` with this address, which another process created; return its bytes, uint8 and flat."""
    if "fd" in address:
        return _mapped(address["fd"], address["size"])
    torch.cuda.init()
    parts = zip(address["cuda"], address["bytes"], strict=True)
    storage = torch.UntypedStorage._new_shared_cuda(*(bytes.fromhex(p) if is_bytes else p for p, is_bytes in parts))
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _mapped(fd: int, size: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)


def _canary_bytes(layout: Layout) -> torch.Tensor:
    """Return the positions of the canary bytes, which reveal writes outside the tensors.

    Canary bytes are the first and the last ``ALIGNMENT`` bytes of each gap between tensors. A gap has fewer than
    ``2 * ALIGNMENT`` bytes, so canary bytes fill it.
    """
    edges = [0, *(edge for slot in layout.slots for edge in (slot.offset, slot.end)), layout.end]
    starts = torch.tensor([*edges[::2], *(end - ALIGNMENT for end in edges[1::2])])
    return (starts[:, None] + torch.arange(ALIGNMENT)).flatten()


def encode(value: Any, slot_of: Callable[[torch.Tensor], Slot]) -> Any:
    """Describe inputs or outputs as JSON for another process, with each tensor replaced by its position in a buffer.

    Raises:
        NotImplementedError: a value is neither a tensor nor a number, text, ``None``, dict, list or tuple.
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
