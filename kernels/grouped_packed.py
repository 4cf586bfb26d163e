"""The gated MLP of ``kernels.grouped`` with gate and up packed into one weight: the variant "tma"."""

from __future__ import annotations

import torch

from kernels import grouped_gated, grouped_tma
from kernels.arguments import expect
from kernels.devices import require_triton
from kernels.grouped_arguments import Five, buffer, five, groups_of
from kernels.grouped_rows import Groups
from kernels.grouped_table import Tile


def mlp_tma(
    x: torch.Tensor,
    w_gate_up: torch.Tensor,
    w_down: torch.Tensor,
    offsets: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``mlp`` in two persistent launches: gate and up are one product with the activation in its epilogue.

    Args:
        x: [T, K] as in ``linear``; so is ``offsets``.
        w_gate_up: [G, K, 2·H], contiguous, from ``pack_gate_up``.
        w_down: [G, H, K], contiguous.
        offsets: int32 [G + 1] or None.
        out: [T, K], contiguous.

    Returns:
        [T, K].

    Raises:
        ValueError: as ``linear``.
        NotImplementedError: as ``kernels.grouped_tma.product``, or not a CUDA tensor.
    """
    groups = _packed_groups(x, w_gate_up, w_down, offsets)
    y = buffer(out, "out", x, x.shape)
    compute_mlp(x, w_gate_up, w_down, groups, y)
    return y


def compute_mlp(
    x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor, groups: Groups, y: torch.Tensor
) -> None:
    """``mlp_tma`` into ``y``; every argument has been checked. Raises NotImplementedError as it does."""
    hidden = x.new_empty(x.shape[0], w_down.shape[1])
    grouped_gated.gated(x, w_gate_up, groups, hidden)
    grouped_tma.product(hidden, w_down, groups, y)


def mlp_train_tma(
    x: torch.Tensor,
    w_gate_up: torch.Tensor,
    w_down: torch.Tensor,
    grad_out: torch.Tensor,
    offsets: torch.Tensor | None = None,
    *,
    out: Five | None = None,
    config: Tile | None = None,
) -> Five:
    """``mlp_train`` in six launches: each pair of gate and up products is one product of packed operands.

    Args:
        x: as in ``mlp_tma``; so are the weights and ``offsets``.
        w_gate_up: [G, K, 2·H], packed.
        w_down: [G, H, K].
        grad_out: [T, K], contiguous: the gradient of y.
        offsets: int32 [G + 1] or None.
        out: buffers for the five results.
        config: tile of the product whose epilogue is the gradient of the activation; by default the table's.

    Returns:
        As ``mlp_train``: the gradients of the gate and up weights apart, each [G, K, H].

    Raises:
        ValueError: as ``linear``.
        NotImplementedError: as ``mlp_tma``.
    """
    groups = _packed_groups(x, w_gate_up, w_down, offsets)
    expect(grad_out, "grad_out", shape=x.shape, dtype=x.dtype, device=x.device, contiguous=True)
    one = (w_gate_up.shape[0], *x.shape[1:], w_down.shape[1])
    results = five(out, x, (x.shape, x.shape, one, one, w_down.shape))
    compute_mlp_train(x, w_gate_up, w_down, grad_out, groups, results, config)
    return results


def compute_mlp_train(
    x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor, grad_out: torch.Tensor, groups: Groups,
    results: Five, cut: Tile | None = None,
) -> None:  # fmt: skip
    """``mlp_train_tma`` into ``results``; every argument has been checked. Raises NotImplementedError as it does."""
    y, grad_x, grad_gate, grad_up, grad_down = results
    gate_up, grad_gate_up = (x.new_empty(x.shape[0], w_gate_up.shape[2]) for _ in range(2))
    hidden = x.new_empty(x.shape[0], w_down.shape[1])
    grouped_gated.gated(x, w_gate_up, groups, hidden, gate_up)
    grouped_tma.product(hidden, w_down, groups, y)
    # The launches that do not read what the one ahead writes begin while it ends.
    grouped_tma.grad_weight(hidden, grad_out, groups, grad_down, follows=False)
    grouped_gated.gated_grad(grad_out, w_down, gate_up, groups, grad_gate_up, cut, follows=False)
    grouped_tma.grad_weight(x, grad_gate_up, groups, grad_gate, grad_up)
    grouped_tma.product(grad_gate_up, w_gate_up.transpose(1, 2), groups, grad_x, follows=False)


def pack_gate_up(w_gate: torch.Tensor, w_up: torch.Tensor) -> dict[str, torch.Tensor]:
    """``w_gate_up`` [G, K, 2·H]: 128 columns of gate, 128 of up, and so on, so that one tile holds both.

    Where H is no multiple of 128 there is no such weight, and its shape says so to ``mlp_tma``.
    """
    half = grouped_gated.HALF
    if w_gate.shape[2] % half:
        return {"w_gate_up": torch.cat((w_gate, w_up), dim=2)}
    pair = torch.stack((w_gate.unflatten(2, (-1, half)), w_up.unflatten(2, (-1, half))), dim=3)
    return {"w_gate_up": pair.flatten(2)}


def _packed_groups(
    x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor, offsets: torch.Tensor | None
) -> Groups:
    """Check what ``mlp_tma`` and ``mlp_train_tma`` share."""
    require_triton(x, "tma")
    groups = groups_of(x, w_gate_up, "w_gate_up", offsets, None)
    shape = (groups.count, w_gate_up.shape[2] // 2, x.shape[1])
    expect(w_down, "w_down", shape=shape, dtype=x.dtype, device=x.device, contiguous=True)
    return groups
