"""Find the tensors that a closure uses, and put back what a call changes: the next call begins from equal state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

#: How far a closure is searched: from a function to a list, to an object, to its attributes, and so on.
_DEPTH = 7

#: Parts of a tensor that are summed: the sum of all of it would not see another order of rows.
_PARTS = 64

#: Begins the name of an object's attribute in a path. A script sees its variables, not the attributes of objects.
_ATTRIBUTE = "@"


def closure_tensors(function: Callable[[], Any]) -> dict[str, torch.Tensor]:
    """Return the tensors that a closure refers to, by the path to each: ``.state``, ``.caches.item0``."""
    return dict(_tensors(function, "", _DEPTH, set()))


def layout(tensor: torch.Tensor) -> Any:
    """Return dtype, device, shape and strides of a tensor."""
    strided = tensor.layout == torch.strided
    return tensor.dtype, tensor.device, tensor.shape, tensor.stride() if strided else None


def is_variable(path: str) -> bool:
    """Return whether a path leads to a variable of the script, not to an attribute of an object."""
    return _ATTRIBUTE not in path


@dataclass(frozen=True)
class ClosureState:
    """The tensors of a closure, and their values before it was called.

    Attributes:
        tensors: by path; those alone whose values can be kept.
        before: copies of their values.
        digests: a digest of the values of each, by which two processes see whether theirs are equal. Neither has any
            if the device has too little memory for the copies.
    """

    tensors: Mapping[str, torch.Tensor]
    before: Mapping[str, torch.Tensor]
    digests: Mapping[str, str]

    @classmethod
    def of(cls, function: Callable[[], Any]) -> ClosureState:
        """Return the present state of a closure."""
        tensors = {path: tensor for path, tensor in closure_tensors(function).items() if _bits(tensor) is not None}
        try:
            digests = {path: f"{layout(tensor)} {_sums(tensor)}" for path, tensor in tensors.items()}
            return cls(tensors, {path: tensor.detach().clone() for path, tensor in tensors.items()}, digests)
        except torch.cuda.OutOfMemoryError:
            return cls(tensors, {}, {})

    def changed(self) -> dict[str, torch.Tensor]:
        """Return where each tensor that was changed differs from its value before: a mask of its shape."""
        masks: dict[str, torch.Tensor] = {}
        for path, before in self.before.items():
            now, then = _bits(self.tensors[path]), _bits(before)
            if now is not None and then is not None and now.shape == then.shape and not torch.equal(now, then):
                masks[path] = now != then
        return masks

    def restore(self, but: Set[str] = frozenset()) -> None:
        """Give all tensors but those of some paths the values that they had before."""
        for path in self.changed().keys() - but:
            # An expanded tensor cannot be written as a whole. Then the next call begins from other state.
            with torch.no_grad(), suppress(RuntimeError):
                self.tensors[path].data.copy_(self.before[path])


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    """Return the paths that two closures have, and at which they have other digests."""
    return {path for path in one.keys() & other.keys() if one[path] != other[path]}


def _bits(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor's memory as integers of its shape; ``None`` if it has no such memory."""
    # torch ends in a segmentation fault on a quantized tensor; a tensor of a subclass may have no memory of its own.
    if tensor.is_quantized or tensor.layout != torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.element_size() not in integers or tensor.is_conj() or tensor.is_neg():
        return None
    return tensor.detach().view(integers[tensor.element_size()])


def _sums(tensor: torch.Tensor) -> list[int]:
    """Return the sums of parts of a tensor's bits."""
    bits = _bits(tensor)
    if bits is None or not bits.numel():
        return []
    return torch.stack([part.sum() for part in bits.contiguous().flatten().tensor_split(_PARTS)]).tolist()


def _tensors(value: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a value refers to, with the path to each."""
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    if depth == 0 or id(value) in seen or isinstance(value, str | int | float | bool | type | torch.dtype | None):
        return
    seen.add(id(value))
    for name, part in _parts(value):
        yield from _tensors(part, f"{path}.{name}", depth - 1, seen)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, FunctionType):
        code: CodeType = value.__code__
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:
                continue  # not assigned yet
        yield from _numbered("default", value.__defaults__ or ())
        yield from (value.__kwdefaults__ or {}).items()
        if value.__module__ == "__main__":  # a script's globals; those of a library are not the closure's buffers
            yield from ((name, value.__globals__[name]) for name in code.co_names if name in value.__globals__)
    elif isinstance(value, MethodType):
        yield "self", value.__self__
        yield "function", value.__func__
    elif isinstance(value, functools.partial):
        yield "function", value.func
        yield from _numbered("argument", value.args)
        yield from value.keywords.items()
    elif isinstance(value, list | tuple):
        yield from _numbered("item", value)
    elif isinstance(value, dict):
        yield from ((str(name), part) for name, part in value.items())
    elif hasattr(value, "__dict__") and type(value).__module__ != "builtins":
        yield from ((f"{_ATTRIBUTE}{name}", part) for name, part in vars(value).items())


def _numbered(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    yield from ((f"{name}{number}", value) for number, value in enumerate(values))
