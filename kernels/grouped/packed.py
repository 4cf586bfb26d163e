"""The gated MLP of ``kernels.grouped`` with gate and up packed: the variants "tma" and "warp_specialized"."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.call_plans import planned
from kernels.common.arguments import expect
from kernels.common.devices import require_triton
from kernels.grouped import gated_kernels as grouped_gated
from kernels.grouped import launch_plan
from kernels.grouped.arguments import Five, buffer, five, groups_of
from kernels.grouped.group_layouts import Groups
from kernels.grouped.launch_plan import MLP, MLP_TMA, MLP_TRAIN, MLP_TRAIN_TMA, MlpPlan, MlpTrainPlan
from kernels.grouped.table import Tile


@planned
def mlp_packed(
    x: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    offsets: Tensor | None = None,
    *,
    out: Tensor | None = None,
    config: MlpPlan | None = None,
) -> Tensor:
    """Compute ``mlp`` in two launches: gate and up are one product with the activation in its epilogue.

    The error of the sigmoid of warp-specialized launches is at most 2^-12: see ``kernels.common.gated_epilogues``.

    Args:
        x: [T, K], as in ``linear``.
        w_gate_up: [G, K, 2·H], contiguous, from ``pack_gate_up``.
        w_down: [G, H, K], contiguous.
        offsets: int32 [G + 1] for ragged groups, as in ``linear``, else None.
        out: [T, K], contiguous.
        config: the launch plan; by default the plan of the GPU's table, of warp-specialized launches and of cuBLAS
            where it is faster, for groups of equal size only.

    Returns:
        [T, K].

    Raises:
        ValueError: an argument does not fit, as in ``linear``.
        NotImplementedError: ``x`` is not on a GPU, or a condition that ``product`` of ``kernels.grouped.tma_kernels``
            or of ``kernels.grouped.warp_specialized_kernels`` states.
    """
    if config == MLP_TMA:
        require_triton(x, "tma")
    groups = _packed_groups(x, w_gate_up, w_down, offsets)
    y = buffer(out, "out", x, x.shape)
    plan = config or MLP(x.device, groups.rows // groups.count, *_weight_shape(w_gate_up))
    compute_mlp(x, w_gate_up, w_down, groups, y, plan)
    return y


def compute_mlp(x: Tensor, w_gate_up: Tensor, w_down: Tensor, groups: Groups, y: Tensor, plan: MlpPlan) -> None:
    """Compute ``mlp`` into ``y``. The caller has checked every argument. Raise what the backends raise."""
    hidden = x.new_empty(x.shape[0], w_down.shape[1])
    launch_plan.gated(plan.gated, x, w_gate_up, groups, hidden)
    launch_plan.product(plan.down, hidden, w_down, groups, y)


@planned
def mlp_train_packed(
    x: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    grad_out: Tensor,
    offsets: Tensor | None = None,
    *,
    out: Five | None = None,
    config: MlpTrainPlan | Tile | None = None,
) -> Five:
    """Compute ``mlp_train`` in six launches: gate and up weights are packed, so that their two products are one.

    Args:
        x: [T, K], see ``linear``.
        w_gate_up: [G, K, 2·H], contiguous: gate and up weights, packed.
        w_down: [G, H, K].
        grad_out: [T, K], contiguous: the gradient of y.
        offsets: int32 [G + 1] for ragged groups, as in ``linear``, else None.
        out: buffers for the five results; allocated when None.
        config: the launch plan, as in ``mlp_packed``; a tile stands for launches by TMA alone, of which the one that
            applies the activation's gradient in its epilogue has this tile.

    Returns:
        As ``mlp_train``. The gradients of the gate and the up weights are separate, each [G, K, H].

    Raises:
        ValueError: an argument does not fit, as in ``linear``.
        NotImplementedError: under the conditions that ``mlp_packed`` states.
    """
    tile = config if isinstance(config, Tile) else None
    plan = MLP_TRAIN_TMA if isinstance(config, Tile) else config
    if plan == MLP_TRAIN_TMA:
        require_triton(x, "tma")
    groups, results = _train_arguments(x, w_gate_up, w_down, grad_out, offsets, out)
    plan = plan or MLP_TRAIN(x.device, groups.rows // groups.count, *_weight_shape(w_gate_up))
    compute_mlp_train(x, w_gate_up, w_down, grad_out, groups, results, plan, tile)
    return results


def compute_mlp_train(
    x: Tensor, w_gate_up: Tensor, w_down: Tensor, grad_out: Tensor, groups: Groups,
    results: Five, plan: MlpTrainPlan, tile: Tile | None = None,
) -> None:  # fmt: skip
    """Compute ``mlp_train`` into ``results``. The caller has checked every argument. Raise what the backends raise."""
    y, grad_x, grad_gate, grad_up, grad_down = results
    gate_up, grad_gate_up = (x.new_empty(x.shape[0], w_gate_up.shape[2]) for _ in range(2))
    hidden = x.new_empty(x.shape[0], w_down.shape[1])
    launch_plan.gated(plan.gated, x, w_gate_up, groups, hidden, gate_up)
    launch_plan.product(plan.down, hidden, w_down, groups, y)
    # A launch that does not read the preceding launch's result begins while that launch ends. This does not hold after
    # cuBLAS: it is not documented whether cuBLAS waits for its predecessor before it lets the next launch begin.
    behind = plan.down == "bmm"
    launch_plan.grad_weight(plan.grad_down, hidden, grad_out, groups, grad_down, follows=behind)
    behind = plan.grad_down == "bmm"
    launch_plan.gated_grad(
        plan.gated_grad, grad_out, w_down, gate_up, groups, grad_gate_up, tile, follows=behind
    )  # fmt: skip
    launch_plan.grad_weight(plan.grad_gate_up, x, grad_gate_up, groups, grad_gate, grad_up)
    transposed = w_gate_up.transpose(1, 2)
    launch_plan.product(plan.grad_x, grad_gate_up, transposed, groups, grad_x, follows=False)


def pack_gate_up(w_gate: Tensor, w_up: Tensor) -> dict[str, Tensor]:
    """Return ``w_gate_up`` [G, K, 2·H]: 128 columns of gate, 128 of up, and so on, so that one tile holds both.

    If H is not a multiple of 128 the weights are only concatenated, and ``mlp_packed`` refuses their shape.
    """
    half = grouped_gated.HALF
    if w_gate.shape[2] % half:
        return {"w_gate_up": torch.cat((w_gate, w_up), dim=2)}
    pair = torch.stack((w_gate.unflatten(2, (-1, half)), w_up.unflatten(2, (-1, half))), dim=3)
    return {"w_gate_up": pair.flatten(2)}


def _packed_groups(x: Tensor, w_gate_up: Tensor, w_down: Tensor, offsets: Tensor | None) -> Groups:
    """Check x, the offsets and both weights of a gated MLP, and return the groups of x's rows."""
    groups = groups_of(x, w_gate_up, "w_gate_up", offsets, None)
    G, K, H = _weight_shape(w_gate_up)
    expect(w_down, "w_down", shape=(G, H, K), dtype=x.dtype, device=x.device, contiguous=True)
    return groups


def _train_arguments(
    x: Tensor, w_gate_up: Tensor, w_down: Tensor, grad_out: Tensor,
    offsets: Tensor | None, out: Five | None,
) -> tuple[Groups, Five]:  # fmt: skip
    groups = _packed_groups(x, w_gate_up, w_down, offsets)
    expect(grad_out, "grad_out", shape=x.shape, dtype=x.dtype, device=x.device, contiguous=True)
    weight_shape = _weight_shape(w_gate_up)
    return groups, five(out, x, (x.shape, x.shape, weight_shape, weight_shape, w_down.shape))


def _weight_shape(w_gate_up: Tensor) -> tuple[int, int, int]:
    """Return (G, K, H), the shape that gate and up each have before they are packed into ``w_gate_up``."""
    G, K, width = w_gate_up.shape
    return G, K, width // 2
