"""Inspect the outputs of a variant as memory: real tensors, on the device, separate from the inputs and each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from lockstep.suite.inputs import tensors_of
from lockstep.timing.rules.rule import Disqualified, Rule

#: Accepted classes of an output. Subclasses are refused: they can compute when they are read, outside the timed part.
REAL = (torch.Tensor, torch.nn.Parameter)


def outputs_of(variant: str, result: Any, device: torch.device) -> list[torch.Tensor]:
    """Return the tensors in a variant's result, after checks that they are plain tensors with memory on the device.

    Raise ``Disqualified`` if a result is a subclass of a tensor, lies on another device, or has less memory than its
    elements.
    """
    tensors = tensors_of(result)
    for index, tensor in enumerate(tensors):
        if type(tensor) not in REAL:
            kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
            raise Disqualified(Rule.UNREAL_OUTPUT, f"{variant} output {index} is a {kind}; return a torch.Tensor")
        if vars(tensor):
            names = ", ".join(sorted(vars(tensor)))
            raise Disqualified(
                Rule.UNREAL_OUTPUT,
                f"{variant} output {index} has attributes of its own: {names}; return it without them",
            )
        if tensor.layout != torch.strided or tensor.device.type != device.type:
            description = f"a {tensor.layout} tensor on {tensor.device}"
            raise Disqualified(
                Rule.UNREAL_OUTPUT, f"{variant} output {index} is {description}; return a dense tensor on {device}"
            )
        size, needed = tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size()
        if size < needed:
            raise Disqualified(
                Rule.UNREAL_OUTPUT,
                f"{variant} output {index} of {needed} bytes has {size} bytes of memory; return one with all elements",
            )
    return tensors


def refuse_aliases(variant: str, outputs: Sequence[torch.Tensor], inputs: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Raise ``Disqualified`` for outputs that share memory with one of the named tensors that a variant only reads."""
    input_extents = [(name, _extent(tensor)) for name, tensor in inputs]
    for index, output in enumerate(outputs):
        begin, end = _extent(output)
        for name, (first, last) in input_extents:
            if max(begin, first) < min(end, last):
                raise Disqualified(
                    Rule.ALIASED_OUTPUT,
                    f"{variant} output {index} shares memory with its argument {name}; return memory of its own",
                )


def refuse_overlaps(variant: str, outputs: Sequence[torch.Tensor]) -> None:
    """Raise ``Disqualified`` for outputs that share an element; interleaved slices of one buffer are accepted."""
    for (first_index, first), (second_index, second) in combinations(enumerate(outputs), 2):
        if _overlap(first, second):
            raise Disqualified(
                Rule.ALIASED_OUTPUT,
                f"{variant} output {first_index} shares memory with output {second_index}; return separate memory",
            )


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the byte after its last byte; equal for an empty tensor."""
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
    length = 1 + sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + length * tensor.element_size()


def _overlap(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    (begin, end), (first, last) = _extent(tensor), _extent(other)
    if max(begin, first) >= min(end, last):
        return False
    if tensor.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return True
    # Mark the bytes of the first tensor in a map of their common storage.
    byte_map = torch.zeros(tensor.untyped_storage().nbytes(), dtype=torch.uint8, device=tensor.device)
    _bytes_in(byte_map, tensor).fill_(1)
    return bool(_bytes_in(byte_map, other).any())


def _bytes_in(byte_map: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    size = tensor.element_size()
    strides = [stride * size for stride in tensor.stride()]
    return byte_map.as_strided((*tensor.shape, size), (*strides, 1), tensor.storage_offset() * size)


def span(tensor: torch.Tensor) -> torch.Tensor:
    """Return all memory from a tensor's first element to its last as one flat tensor, including gaps."""
    length = 1 + sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((length if tensor.numel() else 0,), (1,))


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor with its strides, gaps in its memory included."""
    return span(tensor.detach()).clone().as_strided(tensor.shape, tensor.stride())


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with NaN (integers with their maximum, booleans with True), so that unwritten elements show."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.fill_(float("nan"))
    return tensor.fill_(True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max)


@dataclass(frozen=True)
class Located:
    """An output that a captured graph writes. Its tensor is gone, but its memory still belongs to the graph.

    Arms share the memory of their outputs, so no arm may hold a tensor at this address.
    """

    address: int
    bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Located:
        """Return where a CUDA tensor lies in memory, without holding the tensor."""
        size = span(tensor).numel() * tensor.element_size()
        return cls(tensor.data_ptr(), size, tensor.dtype, tuple(tensor.shape), tensor.stride())

    def tensor(self, device: torch.device) -> torch.Tensor:
        """Return a tensor on the output's memory, valid while the graph exists.

        Source: the CUDA array interface, version 3 (Numba's documentation). The interface has no bfloat16, so bytes are
        used.
        """
        if not self.bytes:
            return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)
        flat = torch.as_tensor(self, device=device).view(self.dtype)
        return flat.as_strided(self.shape, self.strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.bytes,), "typestr": "|u1", "data": (self.address, False), "strides": None, "version": 3}
