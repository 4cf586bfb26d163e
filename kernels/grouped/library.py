"""Library variants of ``grouped``: ``torch._grouped_mm``, the product that torch has for mixtures of experts.

It takes ragged groups only, and allocates its results. For even groups torch has ``torch.bmm`` (variant "bmm").
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.grouped.arguments import Five, Offsets, Three, groups_of, mlp_groups
from kernels.grouped.backends import BMM


def linear(x: Tensor, weight: Tensor, offsets: Tensor | None = None, host_offsets: Offsets | None = None) -> Tensor:
    """Compute ``kernels.grouped.linear``.

    Raises:
        NotImplementedError: groups are even; so do the other functions of this module.
    """
    groups_of(x, weight, "weight", offsets, host_offsets)
    return _multiply(x, weight, _ends(offsets))


def linear_train(
    x: Tensor,
    weight: Tensor,
    grad_out: Tensor,
    offsets: Tensor | None = None,
    host_offsets: Offsets | None = None,
) -> Three:
    """Compute ``kernels.grouped.linear_train``."""
    groups_of(x, weight, "weight", offsets, host_offsets)
    ends = _ends(offsets)
    return (
        _multiply(x, weight, ends),
        _multiply(grad_out, weight.transpose(1, 2), ends),
        _multiply(x.t(), grad_out, ends),
    )


def mlp(
    x: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    offsets: Tensor | None = None,
    host_offsets: Offsets | None = None,
) -> Tensor:
    """Compute ``kernels.grouped.mlp``, with the activation in one Triton kernel."""
    mlp_groups(x, w_gate, w_up, w_down, offsets, host_offsets, None)
    ends = _ends(offsets)
    gate, up = _multiply(x, w_gate, ends), _multiply(x, w_up, ends)
    hidden = torch.empty_like(gate)
    BMM.activate(gate, up, hidden)
    return _multiply(hidden, w_down, ends)


def mlp_train(
    x: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    grad_out: Tensor,
    offsets: Tensor | None = None,
    host_offsets: Offsets | None = None,
) -> Five:
    """Compute ``kernels.grouped.mlp_train``, with each activation in one Triton kernel."""
    mlp_groups(x, w_gate, w_up, w_down, offsets, host_offsets, None)
    ends = _ends(offsets)
    gate, up = _multiply(x, w_gate, ends), _multiply(x, w_up, ends)
    hidden, of_gate, of_up = (torch.empty_like(gate) for _ in range(3))
    BMM.activate(gate, up, hidden)
    of_hidden = _multiply(grad_out, w_down.transpose(1, 2), ends)
    BMM.activate_grad(gate, up, of_hidden, of_gate, of_up)
    grad_x = _multiply(of_gate, w_gate.transpose(1, 2), ends).add_(_multiply(of_up, w_up.transpose(1, 2), ends))
    gradients = _multiply(x.t(), of_gate, ends), _multiply(x.t(), of_up, ends), _multiply(hidden.t(), grad_out, ends)
    return _multiply(hidden, w_down, ends), grad_x, *gradients


def _ends(offsets: Tensor | None) -> Tensor:
    if offsets is None:
        raise NotImplementedError("torch._grouped_mm needs the rows of a group together: even groups interleave them")
    return offsets[1:]


def _multiply(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    """Return ``a @ b[g]`` for rows a, or ``a[:, rows] @ b[rows]`` for each group if both are matrices."""
    product: Tensor = torch._grouped_mm(a, b, offs=ends)
    return product
