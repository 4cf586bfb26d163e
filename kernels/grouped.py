"""Grouped linear and grouped gated MLP: G weights, each applied to its own rows of one input.

Rows come in one of two layouts:

- even: ``x`` is [B·G, K] and row ``b·G + g`` belongs to group g (NVIDIA recsys-examples PR 263, where x is
  viewed as [B, G, K]);
- ragged: rows are sorted by group, ``offsets`` [G + 1] (int32, on x's device) says where each group begins, and
  ``host_offsets`` repeats it as a tuple of ints for variants that would otherwise have to synchronise.

Weights are [G, K, N] as in the PR: ``y = x @ weight[g]``, not transposed as in ``torch.nn.Linear``.
Backward passes are written out: their products are what is measured, not autograd's bookkeeping.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from kernels import grouped_gated, grouped_tma
from kernels.arguments import expect
from kernels.devices import require_triton
from kernels.grouped_products import BMM, LOOP, TMA, TRITON, Products
from kernels.grouped_rows import Groups

FLOATS = (torch.bfloat16, torch.float16, torch.float32)

Offsets = tuple[int, ...]
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Five = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    host_offsets: Offsets | None = None,
    *,
    out: torch.Tensor | None = None,
    products: Products | None = None,
) -> torch.Tensor:
    """``y = x @ weight[g]`` for the rows of each group g.

    Args:
        x: [T, K], contiguous; T = B·G where groups are even.
        weight: [G, K, N], contiguous.
        offsets: int32 [G + 1] where groups are ragged; rising from 0 to T, which is not checked (it is on the GPU).
        host_offsets: the same as a tuple of ints; only the loop needs it.
        out: [T, N], contiguous.
        products: how the products are computed; by default the best for the shape.

    Returns:
        [T, N].

    Raises:
        ValueError: a shape, dtype, device or stride does not fit; names the argument.
        NotImplementedError: ``products`` cannot serve this layout or device.
    """
    groups = _groups(x, weight, "weight", offsets, host_offsets)
    products = products or _best(x, groups)
    y = _buffer(out, "out", x, (x.shape[0], weight.shape[2]))
    products.product(x, weight, groups, y)
    return y


def linear_train(
    x: torch.Tensor,
    weight: torch.Tensor,
    grad_out: torch.Tensor,
    offsets: torch.Tensor | None = None,
    host_offsets: Offsets | None = None,
    *,
    out: Three | None = None,
    products: Products | None = None,
) -> Three:
    """``linear`` and its gradients.

    Args:
        x: as in ``linear``; so are ``weight``, the offsets and ``products``.
        weight: [G, K, N].
        grad_out: [T, N], contiguous: the gradient of y.
        offsets: int32 [G + 1] or None.
        host_offsets: the same as ints.
        out: buffers for the three results.
        products: how the products are computed.

    Returns:
        (y [T, N], gradient of x [T, K], gradient of weight [G, K, N]).

    Raises:
        ValueError: as ``linear``.
        NotImplementedError: as ``linear``.
    """
    groups = _groups(x, weight, "weight", offsets, host_offsets)
    products = products or _best(x, groups)
    shape = (x.shape[0], weight.shape[2])
    expect(grad_out, "grad_out", shape=shape, dtype=x.dtype, device=x.device, contiguous=True)
    y, grad_x, grad_weight = _buffers(out, x, (shape, x.shape, weight.shape))
    products.product(x, weight, groups, y)
    products.product(grad_out, weight.transpose(1, 2), groups, grad_x)
    products.grad_weight(x, grad_out, groups, grad_weight)
    return y, grad_x, grad_weight


def mlp(
    x: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    offsets: torch.Tensor | None = None,
    host_offsets: Offsets | None = None,
    *,
    out: torch.Tensor | None = None,
    products: Products | None = None,
) -> torch.Tensor:
    """``y = (silu(x @ w_gate[g]) · (x @ w_up[g])) @ w_down[g]`` for the rows of each group g.

    Args:
        x: [T, K] as in ``linear``; so are the offsets and ``products``.
        w_gate: [G, K, H], contiguous; so is ``w_up``.
        w_up: [G, K, H].
        w_down: [G, H, K], contiguous.
        offsets: int32 [G + 1] or None.
        host_offsets: the same as ints.
        out: [T, K], contiguous.
        products: how the products are computed.

    Returns:
        [T, K].

    Raises:
        ValueError: as ``linear``.
        NotImplementedError: as ``linear``.
    """
    groups = _mlp_groups(x, w_gate, w_up, w_down, offsets, host_offsets)
    products = products or _best(x, groups)
    y = _buffer(out, "out", x, tuple(x.shape))
    hidden = x.new_empty(x.shape[0], w_gate.shape[2])
    products.gated(x, w_gate, w_up, groups, hidden)
    products.product(hidden, w_down, groups, y)
    return y


def mlp_train(
    x: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    grad_out: torch.Tensor,
    offsets: torch.Tensor | None = None,
    host_offsets: Offsets | None = None,
    *,
    out: Five | None = None,
    products: Products | None = None,
) -> Five:
    """``mlp`` and its gradients.

    Args:
        x: as in ``mlp``; so are the weights, the offsets and ``products``.
        w_gate: [G, K, H].
        w_up: [G, K, H].
        w_down: [G, H, K].
        grad_out: [T, K], contiguous: the gradient of y.
        offsets: int32 [G + 1] or None.
        host_offsets: the same as ints.
        out: buffers for the five results.
        products: how the products are computed.

    Returns:
        (y [T, K], gradients of x, w_gate, w_up and w_down in the shapes of those).

    Raises:
        ValueError: as ``linear``.
        NotImplementedError: as ``linear``.
    """
    groups = _mlp_groups(x, w_gate, w_up, w_down, offsets, host_offsets)
    products = products or _best(x, groups)
    expect(grad_out, "grad_out", shape=x.shape, dtype=x.dtype, device=x.device, contiguous=True)
    shapes = (x.shape, x.shape, w_gate.shape, w_up.shape, w_down.shape)
    y, grad_x, grad_gate, grad_up, grad_down = _buffers(out, x, shapes)
    gate, up, hidden, of_gate, of_up = (x.new_empty(x.shape[0], w_gate.shape[2]) for _ in range(5))
    products.gated(x, w_gate, w_up, groups, hidden, keep=(gate, up))
    products.product(hidden, w_down, groups, y)
    products.grad_weight(hidden, grad_out, groups, grad_down)
    products.gated_grad(grad_out, w_down, gate, up, groups, of_gate, of_up)
    products.grad_weight(x, of_gate, groups, grad_gate)
    products.grad_weight(x, of_up, groups, grad_up)
    products.product(of_gate, w_gate.transpose(1, 2), groups, grad_x, too=(of_up, w_up.transpose(1, 2)))
    return y, grad_x, grad_gate, grad_up, grad_down


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
    groups, hidden = _packed_hidden(x, w_gate_up, w_down, offsets)
    y = _buffer(out, "out", x, x.shape)
    grouped_gated.gated(x, w_gate_up, groups, hidden)
    grouped_tma.product(hidden, w_down, groups, y)
    return y


def mlp_train_tma(
    x: torch.Tensor,
    w_gate_up: torch.Tensor,
    w_down: torch.Tensor,
    grad_out: torch.Tensor,
    offsets: torch.Tensor | None = None,
    *,
    out: Five | None = None,
) -> Five:
    """``mlp_train`` in six launches: each pair of gate and up products is one product of packed operands.

    Args:
        x: as in ``mlp_tma``; so are the weights and ``offsets``.
        w_gate_up: [G, K, 2·H], packed.
        w_down: [G, H, K].
        grad_out: [T, K], contiguous: the gradient of y.
        offsets: int32 [G + 1] or None.
        out: buffers for the five results.

    Returns:
        As ``mlp_train``: the gradients of the gate and up weights apart, each [G, K, H].

    Raises:
        ValueError: as ``linear``.
        NotImplementedError: as ``mlp_tma``.
    """
    groups, hidden = _packed_hidden(x, w_gate_up, w_down, offsets)
    expect(grad_out, "grad_out", shape=x.shape, dtype=x.dtype, device=x.device, contiguous=True)
    one = (w_gate_up.shape[0], *x.shape[1:], hidden.shape[1])
    y, grad_x, grad_gate, grad_up, grad_down = _buffers(out, x, (x.shape, x.shape, one, one, w_down.shape))
    gate_up, grad_gate_up = (x.new_empty(x.shape[0], w_gate_up.shape[2]) for _ in range(2))
    grouped_gated.gated(x, w_gate_up, groups, hidden, gate_up)
    grouped_tma.product(hidden, w_down, groups, y)
    # The launches that do not read what the one ahead writes begin while it ends.
    grouped_tma.grad_weight(hidden, grad_out, groups, grad_down, follows=False)
    grouped_gated.gated_grad(grad_out, w_down, gate_up, groups, grad_gate_up, follows=False)
    grouped_tma.grad_weight(x, grad_gate_up, groups, grad_gate, grad_up)
    grouped_tma.product(grad_gate_up, w_gate_up.transpose(1, 2), groups, grad_x, follows=False)
    return y, grad_x, grad_gate, grad_up, grad_down


def pack_gate_up(w_gate: torch.Tensor, w_up: torch.Tensor) -> dict[str, torch.Tensor]:
    """``w_gate_up`` [G, K, 2·H]: 128 columns of gate, 128 of up, and so on, so that one tile holds both.

    Where H is no multiple of 128 there is no such weight, and its shape says so to ``mlp_tma``.
    """
    half = grouped_gated.HALF
    if w_gate.shape[2] % half:
        return {"w_gate_up": torch.cat((w_gate, w_up), dim=2)}
    pair = torch.stack((w_gate.unflatten(2, (-1, half)), w_up.unflatten(2, (-1, half))), dim=3)
    return {"w_gate_up": pair.flatten(2)}


def _packed_hidden(
    x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor, offsets: torch.Tensor | None
) -> tuple[Groups, torch.Tensor]:
    """Check what ``mlp_tma`` and ``mlp_train_tma`` share, and make room for the hidden layer."""
    require_triton(x, "tma")
    groups = _groups(x, w_gate_up, "w_gate_up", offsets, None)
    shape = (groups.count, w_gate_up.shape[2] // 2, x.shape[1])
    expect(w_down, "w_down", shape=shape, dtype=x.dtype, device=x.device, contiguous=True)
    return groups, x.new_empty(x.shape[0], shape[1])


def _groups(
    x: torch.Tensor, weight: torch.Tensor, name: str, offsets: torch.Tensor | None, host_offsets: Offsets | None
) -> Groups:
    """Check what all operations share."""
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


def _mlp_groups(
    x: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    offsets: torch.Tensor | None,
    host_offsets: Offsets | None,
) -> Groups:
    groups = _groups(x, w_gate, "w_gate", offsets, host_offsets)
    count, K, H = w_gate.shape
    expect(w_up, "w_up", shape=(count, K, H), dtype=x.dtype, device=x.device, contiguous=True)
    expect(w_down, "w_down", shape=(count, H, K), dtype=x.dtype, device=x.device, contiguous=True)
    return groups


def _buffer(given: torch.Tensor | None, name: str, x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    if given is None:
        return x.new_empty(shape)
    expect(given, name, shape=shape, dtype=x.dtype, device=x.device, contiguous=True)
    return given


def _buffers(
    out: tuple[torch.Tensor, ...] | None, x: torch.Tensor, shapes: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    given = out or [None] * len(shapes)
    if len(given) != len(shapes):
        raise ValueError(f"out must be {len(shapes)} tensors, got {len(given)}")
    return [_buffer(one, f"out[{index}]", x, shapes[index]) for index, one in enumerate(given)]


def _best(x: torch.Tensor, groups: Groups) -> Products:
    """cuBLAS serves even groups in one launch; ragged ones need the loop or the Triton kernels."""
    if groups.offsets is None:
        return BMM
    return LOOP if x.device.type == "cpu" else TRITON


VARIANTS = {
    "linear.loop": partial(linear, products=LOOP),
    "linear.bmm": partial(linear, products=BMM),
    "linear.triton": partial(linear, products=TRITON),
    "linear.tma": partial(linear, products=TMA),
    "linear.best": linear,
    "linear_train.loop": partial(linear_train, products=LOOP),
    "linear_train.bmm": partial(linear_train, products=BMM),
    "linear_train.triton": partial(linear_train, products=TRITON),
    "linear_train.tma": partial(linear_train, products=TMA),
    "linear_train.best": linear_train,
    "mlp.loop": partial(mlp, products=LOOP),
    "mlp.bmm": partial(mlp, products=BMM),
    "mlp.triton": partial(mlp, products=TRITON),
    "mlp.tma": mlp_tma,
    "mlp.best": mlp,
    "mlp_train.loop": partial(mlp_train, products=LOOP),
    "mlp_train.bmm": partial(mlp_train, products=BMM),
    "mlp_train.triton": partial(mlp_train, products=TRITON),
    "mlp_train.tma": mlp_train_tma,
    "mlp_train.best": mlp_train,
}

PREPARE = {
    "mlp.tma": pack_gate_up,
    "mlp_train.tma": pack_gate_up,
}
