"""Compare the outputs of two calls on the same inputs bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor's elements, uint8 and flat."""
    return tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8)


def difference(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> str:
    """Return where the outputs of two calls differ, or "" if their bits are the same."""
    if len(first) != len(second):
        return f"two calls on the same inputs return {len(first)} and {len(second)} tensors"
    for index, (output, repeated) in enumerate(zip(first, second, strict=True)):
        sentence = f"two calls on the same inputs differ in output {index}"
        if output.shape != repeated.shape or output.dtype != repeated.dtype:
            return f"{sentence}: {output.dtype} {list(output.shape)} and {repeated.dtype} {list(repeated.shape)}"
        if torch.equal(bits_of(output), bits_of(repeated)):
            continue
        unequal = (bits_of(output) != bits_of(repeated)).view(output.numel(), -1).any(1)
        place = torch.unravel_index(unequal.nonzero()[0, 0], output.shape)
        position = ", ".join(str(int(axis)) for axis in place)
        return f"{sentence}, in {int(unequal.sum())} of {output.numel()} elements, first at [{position}]"
    return ""
