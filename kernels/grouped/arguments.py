"""Check the arguments of ``kernels.grouped``, and make the buffers that its operations write into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels.common.arguments import expect
from kernels.grouped.group_layouts import Groups

FLOATS = (torch.bfloat16, torch.float16, torch.float32)

Offsets = tuple[int, ...]
Three = tuple[Tensor, Tensor, Tensor]
Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def groups_of(x: Tensor, weight: Tensor, name: str, offsets: Tensor | None, host_offsets: Offsets | None) -> Groups:
    """Check x, the weight [G, K, any] and the offsets, and return the groups of x's rows.

    Raises:
        ValueError: an argument does not fit; the message names the argument. All functions of this module raise it.
    """
    expect(x, "x", shape=(None, None), dtype=FLOATS, contiguous=True)
    expect(weight, name, shape=(None, x.shape[1], None), dtype=x.dtype, device=x.device, contiguous=True)
    count = weight.shape[0]
    if offsets is None:
        if x.shape[0] % count:
            raise ValueError(f"x must have rows for {count} even groups, got {x.shape[0]}; give offsets if ragged")
    else:
        expect(offsets, "offsets", shape=(count + 1,), dtype=torch.int32, device=x.device, contiguous=True)
    if host_offsets is not None and (len(host_offsets) != count + 1 or host_offsets[-1] != x.shape[0]):
        raise ValueError(f"host_offsets must be {count + 1} numbers that end at {x.shape[0]}, got {host_offsets}")
    return Groups(x.shape[0], count, offsets, host_offsets)


def ends_of(value: Any) -> Any:
    """Return the number of host offsets and the last offset, on which alone launches depend; keep other arguments.

    A training step has different offsets at each call. With this reduction one plan serves all calls.
    """
    return (len(value), value[-1]) if type(value) is tuple and value and type(value[-1]) is int else value


def mlp_groups(
    x: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    offsets: Tensor | None,
    host_offsets: Offsets | None,
    w_gate_up: Tensor | None,
) -> Groups:
    """Check x, the weights and offsets of a gated MLP, and return the groups of x's rows; ``w_gate_up`` may be None."""
    groups = groups_of(x, w_gate, "w_gate", offsets, host_offsets)
    count, K, H = w_gate.shape
    expect(w_up, "w_up", shape=(count, K, H), dtype=x.dtype, device=x.device, contiguous=True)
    expect(w_down, "w_down", shape=(count, H, K), dtype=x.dtype, device=x.device, contiguous=True)
    if w_gate_up is not None:
        expect(w_gate_up, "w_gate_up", shape=(count, K, 2 * H), dtype=x.dtype, device=x.device, contiguous=True)
    return groups


def buffer(tensor: Tensor | None, name: str, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Check and return the caller's buffer, or return a new buffer with the dtype and device of x."""
    if tensor is None:
        return x.new_empty(shape)
    expect(tensor, name, shape=shape, dtype=x.dtype, device=x.device, contiguous=True)
    return tensor


def buffers(out: tuple[Tensor, ...] | None, x: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return one buffer for each shape; ``out`` is None or has a buffer for each shape."""
    tensors = out or [None] * len(shapes)
    if len(tensors) != len(shapes):
        raise ValueError(f"out must be {len(shapes)} tensors, got {len(tensors)}")
    return [buffer(tensor, f"out[{index}]", x, shapes[index]) for index, tensor in enumerate(tensors)]


def five(out: Five | None, x: Tensor, shapes: Sequence[Sequence[int]]) -> Five:
    """Return buffers for ``mlp_train``: y, and the gradients of x, w_gate, w_up and w_down."""
    y, grad_x, grad_gate, grad_up, grad_down = buffers(out, x, shapes)
    return y, grad_x, grad_gate, grad_up, grad_down
