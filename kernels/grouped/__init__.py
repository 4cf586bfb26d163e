"""Grouped linear and grouped gated MLP: G weights, each applied to its own rows of one input.

Rows come in one of two layouts:

- even: ``x`` is [B·G, K] and row ``b·G + g`` belongs to group g (NVIDIA recsys-examples PR 263, where x is viewed as
  [B, G, K]);
- ragged: rows are sorted by group, and ``offsets`` [G + 1] (int32, on x's device) holds the first row of each group.
  ``host_offsets`` repeats the offsets as a tuple of ints, for variants that would otherwise have to synchronise.

Weights are [G, K, N] as in the PR: ``y = x @ weight[g]``, not transposed as in ``torch.nn.Linear``. Backward passes are
written out, so that their products are measured without autograd's overhead.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from kernels.call_plans import planned
from kernels.common.arguments import expect
from kernels.common.tables import first_that_can
from kernels.grouped import library
from kernels.grouped.arguments import Five, Offsets, Three, buffer, buffers, ends_of, five, groups_of, mlp_groups
from kernels.grouped.backends import BMM, FOREACH, LOOP, TMA, TRITON, Products
from kernels.grouped.dispatch import BEST, backends_for, best_of, gated_grad_tiles, mlp_plan, mlp_train_plan
from kernels.grouped.launch_plan import MLP_TMA, MLP_TRAIN_TMA, mlp_plans_at, mlp_train_plans_at, tile_configs_at
from kernels.grouped.packed import compute_mlp, compute_mlp_train, mlp_packed, mlp_train_packed, pack_gate_up
from kernels.grouped.table import TABLE as TABLE


@planned(by=ends_of)
def linear(
    x: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    host_offsets: Offsets | None = None,
    *,
    out: Tensor | None = None,
    products: Products | None = None,
    config: str | None = None,
) -> Tensor:
    """Compute ``y = x @ weight[g]`` for the rows of each group g.

    Args:
        x: [T, K], contiguous; T = B·G for even groups.
        weight: [G, K, N], contiguous.
        offsets: int32 [G + 1] for ragged groups, ascending from 0 to T, else None. The values are on the GPU and not
            checked.
        host_offsets: the offsets as a tuple of ints; only "loop" needs them.
        out: [T, N], contiguous.
        products: the backend; by default the backend that ``config`` names.
        config: a name in ``BACKENDS``, "warp_specialized" or one of its tile configs; by default the entry of the GPU's
            table for the shape.

    Returns:
        [T, N].

    Raises:
        ValueError: a shape, dtype, device or stride does not fit; the message names the argument.
        NotImplementedError: ``products`` does not support this layout or device.
    """
    groups = groups_of(x, weight, "weight", offsets, host_offsets)
    y = buffer(out, "out", x, (x.shape[0], weight.shape[2]))
    backends = (products,) if products else backends_for("linear", config, x, weight, groups)
    first_that_can(backends, lambda backend: backend.product(x, weight, groups, y))
    return y


@planned(by=ends_of)
def linear_train(
    x: Tensor,
    weight: Tensor,
    grad_out: Tensor,
    offsets: Tensor | None = None,
    host_offsets: Offsets | None = None,
    *,
    out: Three | None = None,
    products: Products | None = None,
    config: str | None = None,
) -> Three:
    """Compute ``linear`` and its gradients.

    Args:
        x: [T, K], contiguous; the layouts of rows are those of ``linear``.
        weight: [G, K, N], contiguous.
        grad_out: [T, N], contiguous: the gradient of y.
        offsets: int32 [G + 1] for ragged groups, else None.
        host_offsets: the offsets as a tuple of ints; only "loop" needs them.
        out: buffers for the three results; allocated when None.
        products: the backend; by default the one that ``config`` names.
        config: as in ``linear``.

    Returns:
        (y [T, N], gradient of x [T, K], gradient of weight [G, K, N]).

    Raises:
        ValueError: an argument does not fit, as in ``linear``.
        NotImplementedError: under the conditions that ``linear`` states.
    """
    groups = groups_of(x, weight, "weight", offsets, host_offsets)
    shape = (x.shape[0], weight.shape[2])
    expect(grad_out, "grad_out", shape=shape, dtype=x.dtype, device=x.device, contiguous=True)
    y, grad_x, grad_weight = buffers(out, x, (shape, x.shape, weight.shape))

    def compute(backend: Products) -> None:
        backend.product(x, weight, groups, y)
        backend.product(grad_out, weight.transpose(1, 2), groups, grad_x, follows=False)
        backend.grad_weight(x, grad_out, groups, grad_weight, follows=False)

    first_that_can((products,) if products else backends_for("linear_train", config, x, weight, groups), compute)
    return y, grad_x, grad_weight


@planned(by=ends_of)
def mlp(
    x: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    offsets: Tensor | None = None,
    host_offsets: Offsets | None = None,
    w_gate_up: Tensor | None = None,
    *,
    out: Tensor | None = None,
    products: Products | None = None,
    config: str | None = None,
) -> Tensor:
    """Compute ``y = (silu(x @ w_gate[g]) · (x @ w_up[g])) @ w_down[g]`` for the rows of each group g.

    Args:
        x: [T, K], contiguous; the layouts of rows are those of ``linear``.
        w_gate: [G, K, H], contiguous.
        w_up: [G, K, H], contiguous.
        w_down: [G, H, K], contiguous.
        offsets: int32 [G + 1] for ragged groups, else None.
        host_offsets: the offsets as a tuple of ints; only "loop" needs them.
        w_gate_up: [G, K, 2·H], gate and up weights from ``pack_gate_up``, which the packed kernels need.
        out: [T, K], contiguous.
        products: the backend; by default the one that ``config`` names.
        config: as in ``linear``.

    Returns:
        [T, K].

    Raises:
        ValueError: an argument does not fit, as in ``linear``.
        NotImplementedError: under the conditions that ``linear`` states.
    """
    groups = mlp_groups(x, w_gate, w_up, w_down, offsets, host_offsets, w_gate_up)
    y = buffer(out, "out", x, tuple(x.shape))
    backends = (products,) if products else backends_for("mlp", config, x, w_gate, groups)
    plan = None if products or w_gate_up is None else mlp_plan(config, x, w_gate, groups)
    if plan and w_gate_up is not None:
        try:
            compute_mlp(x, w_gate_up, w_down, groups, y, plan)
            return y
        except NotImplementedError:
            if config:
                raise
    hidden = x.new_empty(x.shape[0], w_gate.shape[2])

    def compute(backend: Products) -> None:
        backend.gated(x, w_gate, w_up, groups, hidden)
        backend.product(hidden, w_down, groups, y)

    first_that_can(backends, compute)
    return y


@planned(by=ends_of)
def mlp_train(
    x: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    grad_out: Tensor,
    offsets: Tensor | None = None,
    host_offsets: Offsets | None = None,
    w_gate_up: Tensor | None = None,
    *,
    out: Five | None = None,
    products: Products | None = None,
    config: str | None = None,
) -> Five:
    """Compute ``mlp`` and its gradients.

    Args:
        x: [T, K], contiguous; the layouts of rows are those of ``linear``.
        w_gate: [G, K, H], contiguous.
        w_up: [G, K, H], contiguous.
        w_down: [G, H, K], contiguous.
        grad_out: [T, K], contiguous: the gradient of y.
        offsets: int32 [G + 1] for ragged groups, else None.
        host_offsets: the offsets as a tuple of ints; only "loop" needs them.
        w_gate_up: [G, K, 2·H], gate and up weights from ``pack_gate_up``, which the packed kernels need.
        out: buffers for the five results; allocated when None.
        products: the backend; by default the one that ``config`` names.
        config: as in ``linear``.

    Returns:
        (y [T, K], gradients of x, w_gate, w_up and w_down, each in the shape of its argument).

    Raises:
        ValueError: an argument does not fit, as in ``linear``.
        NotImplementedError: under the conditions that ``linear`` states.
    """
    groups = mlp_groups(x, w_gate, w_up, w_down, offsets, host_offsets, w_gate_up)
    expect(grad_out, "grad_out", shape=x.shape, dtype=x.dtype, device=x.device, contiguous=True)
    shapes = (x.shape, x.shape, w_gate.shape, w_up.shape, w_down.shape)
    results = y, grad_x, grad_gate, grad_up, grad_down = five(out, x, shapes)
    backends = (products,) if products else backends_for("mlp_train", config, x, w_gate, groups)
    plan = None if products or w_gate_up is None else mlp_train_plan(config, x, w_gate, groups)
    if plan and w_gate_up is not None:
        try:
            compute_mlp_train(x, w_gate_up, w_down, grad_out, groups, results, plan)
            return results
        except NotImplementedError:
            if config:
                raise
    gate, up, hidden, of_gate, of_up = (x.new_empty(x.shape[0], w_gate.shape[2]) for _ in range(5))

    def compute(backend: Products) -> None:
        backend.gated(x, w_gate, w_up, groups, hidden, keep=(gate, up))
        backend.product(hidden, w_down, groups, y)
        backend.grad_weight(hidden, grad_out, groups, grad_down)
        backend.gated_grad(grad_out, w_down, gate, up, groups, of_gate, of_up)
        backend.grad_weight(x, of_gate, groups, grad_gate)
        backend.grad_weight(x, of_up, groups, grad_up)
        backend.product(of_gate, w_gate.transpose(1, 2), groups, grad_x, too=(of_up, w_up.transpose(1, 2)))

    first_that_can(backends, compute)
    return results


VARIANTS = {
    "linear.loop": partial(linear, products=LOOP),
    "linear.bmm": partial(linear, products=BMM),
    "linear.foreach": partial(linear, products=FOREACH),
    "linear.grouped_mm": library.linear,
    "linear.triton": partial(linear, products=TRITON),
    "linear.tma": partial(linear, products=TMA),
    "linear.warp_specialized": partial(linear, config="warp_specialized"),
    "linear.best": linear,
    "linear_train.loop": partial(linear_train, products=LOOP),
    "linear_train.bmm": partial(linear_train, products=BMM),
    "linear_train.grouped_mm": library.linear_train,
    "linear_train.triton": partial(linear_train, products=TRITON),
    "linear_train.tma": partial(linear_train, products=TMA),
    "linear_train.warp_specialized": partial(linear_train, config="warp_specialized"),
    "linear_train.best": linear_train,
    "mlp.loop": partial(mlp, products=LOOP),
    "mlp.bmm": partial(mlp, products=BMM),
    "mlp.grouped_mm": library.mlp,
    "mlp.triton": partial(mlp, products=TRITON),
    "mlp.tma": partial(mlp_packed, config=MLP_TMA),
    "mlp.warp_specialized": mlp_packed,
    "mlp.best": mlp,
    "mlp_train.loop": partial(mlp_train, products=LOOP),
    "mlp_train.bmm": partial(mlp_train, products=BMM),
    "mlp_train.grouped_mm": library.mlp_train,
    "mlp_train.triton": partial(mlp_train, products=TRITON),
    "mlp_train.tma": partial(mlp_train_packed, config=MLP_TRAIN_TMA),
    "mlp_train.warp_specialized": mlp_train_packed,
    "mlp_train.best": mlp_train,
}

PREPARE = {
    f"{op}.{variant}": pack_gate_up for op in ("mlp", "mlp_train") for variant in ("tma", "warp_specialized", "best")
}

#: Search spaces of ``lockstep tune``: variant → function of a case.
CANDIDATES = {
    **{f"{op}.best": partial(best_of, op) for op in BEST},
    **{f"{op}.warp_specialized": partial(tile_configs_at, op) for op in ("linear", "linear_train")},
    "mlp.warp_specialized": mlp_plans_at,
    "mlp_train.tma": gated_grad_tiles,
    "mlp_train.warp_specialized": mlp_train_plans_at,
}
