"""Write other values into the arguments of a replay in place, and compute checksums that reveal later writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lockstep.suite.inputs import tensors_of
from lockstep.timing.checks.output_memory import span

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

#: Number of words that a checksum multiplies by their weights at once.
_CHUNK = 1 << 22


def fits(old: Any, new: Any) -> bool:
    """Return whether ``new`` can be written in place of ``old``: tensors have the same layout, numbers are equal.

    Objects of other classes count as equal. If such an object depends on the drawn values, the later comparison of
    results with the reference fails.
    """
    return alike(old, new, lambda one, other: _layout(one) == _layout(other), others=True)


def alike(old: Any, new: Any, tensors: Callable[[torch.Tensor, torch.Tensor], bool], *, others: bool) -> bool:
    """Return whether two values have the same structure and numbers, and tensors of which ``tensors`` holds.

    ``others`` is the answer for objects of other classes.
    """
    within = functools.partial(alike, tensors=tensors, others=others)
    if isinstance(old, torch.Tensor):
        return isinstance(new, torch.Tensor) and tensors(old, new)
    if isinstance(old, dict):
        return isinstance(new, dict) and old.keys() == new.keys() and all(within(old[name], new[name]) for name in old)
    if isinstance(old, list | tuple):
        return isinstance(new, list | tuple) and len(old) == len(new) and all(map(within, old, new))
    if isinstance(old, int | float | str | bool | None):
        return type(old) is type(new) and bool(old == new)
    return others


def floats(value: Any) -> bool:
    """Return whether a value consists of floating-point tensors only, and of at least one."""
    tensors = tensors_of(value)
    return bool(tensors) and all(tensor.is_floating_point() for tensor in tensors)


def write(old: Any, new: Any, written: set[int]) -> None:
    """Copy the tensors of ``new`` into the tensors of ``old``. Tensors that do not fit are left unchanged.

    Args:
        old: tensors, also in dicts, lists and tuples.
        written: addresses that already hold their new values; the addresses written by this call are added.
    """
    if isinstance(old, torch.Tensor):
        if isinstance(new, torch.Tensor) and _layout(old) == _layout(new) and old.data_ptr() not in written:
            written.add(old.data_ptr())
            # ``data`` is used because a variant must not see the write in the tensor's version counter.
            span(old.data).copy_(span(new))
    elif isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() & new.keys():
            write(old[name], new[name], written)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        for old_part, new_part in zip(old, new, strict=False):
            write(old_part, new_part, written)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor's memory, gaps included, as integers, by which NaN values compare as equal."""
    return span(tensor).view(_INTEGERS.get(tensor.element_size(), torch.int64))


def checksums(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return a checksum of each tensor's memory, a sum weighted by position so that exchanged elements change it."""
    if not tensors:
        return []
    sums = []
    for tensor in tensors:
        total = torch.zeros((), dtype=torch.int64, device=tensor.device)
        for words in _words(tensor):
            # The weights are odd, so that no bit is lost.
            weights = torch.arange(min(len(words), _CHUNK), device=tensor.device) * 2 + 1
            for number, part in enumerate(words.split(_CHUNK)):
                total = total * 31 + (part * weights[: len(part)]).sum() + number
        sums.append(total)
    return [int(value) for value in torch.stack(sums).tolist()]


def _words(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return a tensor's memory, gaps included, as 8-byte words and the bytes after the last word."""
    memory = span(tensor).view(torch.uint8)
    if memory.data_ptr() % 8 or memory.storage_offset() % 8:
        return [memory]
    in_words = len(memory) // 8 * 8
    return [memory[:in_words].view(torch.int64), memory[in_words:]]


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.stride()
