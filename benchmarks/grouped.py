"""Grouped linear and gated MLP at the shapes of NVIDIA recsys-examples PR 263, in bf16.

B = 2560, G = 12, 1024 → 3072 is the PR's; around it a tenth of its batch, and fewer groups of fewer rows. Each
shape exists with even groups and ragged, where the same number of rows is dealt unevenly.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lockstep import Case, Suite, cases

if TYPE_CHECKING:
    import torch

    from lockstep.suite.inputs import Draw


def sizes(B: int, G: int) -> tuple[int, ...]:
    """Rows of each ragged group: B·G in all, the largest group about G times the smallest, in no sorted order."""
    # 5 and 12, or 5 and 4, share no factor, so the shares are a permutation of 1 … G.
    shares = [1 + 5 * group % G for group in range(G)]
    counts = [B * G * share // sum(shares) for share in shares]
    return (*counts[:-1], B * G - sum(counts[:-1]))


def _rows(draw: Draw, B: int, G: int, K: int, ragged: bool) -> dict[str, Any]:
    given: dict[str, Any] = {"x": draw.normal(B * G, K)}
    if ragged:
        counts = sizes(B, G)
        given["host_offsets"] = tuple(sum(counts[:group]) for group in range(G + 1))
        given["offsets"] = draw.tensor(given["host_offsets"], dtype="int32")
    return given


def _groups(matrix: torch.Tensor, count: int, host_offsets: tuple[int, ...] | None) -> list[torch.Tensor]:
    if host_offsets is None:
        return list(matrix.unflatten(0, (-1, count)).unbind(1))
    return list(matrix.split([end - begin for begin, end in pairwise(host_offsets)]))


def _join(parts: list[torch.Tensor], host_offsets: tuple[int, ...] | None) -> torch.Tensor:
    # Start-up: torch is slow to import.
    import torch

    return torch.cat(parts) if host_offsets else torch.stack(parts, 1).flatten(0, 1)


def _gradients(*leaves: torch.Tensor) -> list[torch.Tensor]:
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def linear_inputs(draw: Draw, B: int, G: int, K: int, N: int, ragged: bool) -> dict[str, Any]:
    """x [B·G, K] and weight [G, K, N] scaled so that y is of order one."""
    return {**_rows(draw, B, G, K, ragged), "weight": draw.normal(G, K, N, scale=K**-0.5)}


def linear_reference(
    x: torch.Tensor, weight: torch.Tensor, host_offsets: tuple[int, ...] | None = None
) -> torch.Tensor:
    """y in float32, one product a group."""
    parts = _groups(x.float(), len(weight), host_offsets)
    return _join([part @ own for part, own in zip(parts, weight.float(), strict=True)], host_offsets)


def linear_output(draw: Draw, B: int, G: int, N: int) -> torch.Tensor:
    """y [B·G, N]."""
    return draw.empty(B * G, N)


def linear_flops(B: int, G: int, K: int, N: int) -> float:
    """Two for each multiply-add."""
    return 2.0 * B * G * K * N


def linear_bytes(B: int, G: int, K: int, N: int) -> float:
    """x and weight read, y written."""
    return 2.0 * G * (B * K + K * N + B * N)


def linear_train_inputs(draw: Draw, B: int, G: int, K: int, N: int, ragged: bool) -> dict[str, Any]:
    """As ``linear_inputs``, and the gradient of y [B·G, N]."""
    return {**linear_inputs(draw, B, G, K, N, ragged), "grad_out": draw.normal(B * G, N)}


def linear_train_reference(
    x: torch.Tensor, weight: torch.Tensor, grad_out: torch.Tensor, host_offsets: tuple[int, ...] | None = None
) -> tuple[torch.Tensor, ...]:
    """y and the gradients of x and weight in float32, by autograd."""
    x, weight = x.float().requires_grad_(), weight.float().requires_grad_()
    y = linear_reference(x, weight, host_offsets)
    y.backward(grad_out.float())
    return y.detach(), *_gradients(x, weight)


def linear_train_outputs(draw: Draw, B: int, G: int, K: int, N: int) -> tuple[torch.Tensor, ...]:
    """y and the gradients of x and weight."""
    return draw.empty(B * G, N), draw.empty(B * G, K), draw.empty(G, K, N)


def linear_train_flops(B: int, G: int, K: int, N: int) -> float:
    """Three products."""
    return 3 * linear_flops(B, G, K, N)


def linear_train_bytes(B: int, G: int, K: int, N: int) -> float:
    """x, weight and y's gradient read; y and two gradients written."""
    return 2 * linear_bytes(B, G, K, N)


def mlp_inputs(draw: Draw, B: int, G: int, K: int, H: int, ragged: bool) -> dict[str, Any]:
    """x [B·G, K], w_gate and w_up [G, K, H], w_down [G, H, K]."""
    return {
        **_rows(draw, B, G, K, ragged),
        "w_gate": draw.normal(G, K, H, scale=K**-0.5),
        "w_up": draw.normal(G, K, H, scale=K**-0.5),
        "w_down": draw.normal(G, H, K, scale=H**-0.5),
    }


def mlp_reference(
    x: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    host_offsets: tuple[int, ...] | None = None,
) -> torch.Tensor:
    """y in float32; the hidden layer is not rounded in between."""
    parts = _groups(x.float(), len(w_gate), host_offsets)
    results = []
    for part, gate_weight, up_weight, down_weight in zip(parts, w_gate, w_up, w_down, strict=True):
        gate = part @ gate_weight.float()
        results.append((gate * gate.sigmoid() * (part @ up_weight.float())) @ down_weight.float())
    return _join(results, host_offsets)


def mlp_output(draw: Draw, B: int, G: int, K: int) -> torch.Tensor:
    """y [B·G, K]."""
    return draw.empty(B * G, K)


def mlp_flops(B: int, G: int, K: int, H: int) -> float:
    """Three products; the activation is not counted."""
    return 6.0 * B * G * K * H


def mlp_bytes(B: int, G: int, K: int, H: int) -> float:
    """x and the weights read, y written; the hidden layer need not leave the chip."""
    return 2.0 * G * (2 * B * K + 3 * K * H)


def mlp_train_inputs(draw: Draw, B: int, G: int, K: int, H: int, ragged: bool) -> dict[str, Any]:
    """As ``mlp_inputs``, and the gradient of y [B·G, K]."""
    return {**mlp_inputs(draw, B, G, K, H, ragged), "grad_out": draw.normal(B * G, K)}


def mlp_train_reference(
    x: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    grad_out: torch.Tensor,
    host_offsets: tuple[int, ...] | None = None,
) -> tuple[torch.Tensor, ...]:
    """y and the gradients of x, w_gate, w_up and w_down in float32, by autograd."""
    x, w_gate, w_up, w_down = (tensor.float().requires_grad_() for tensor in (x, w_gate, w_up, w_down))
    y = mlp_reference(x, w_gate, w_up, w_down, host_offsets)
    y.backward(grad_out.float())
    return y.detach(), *_gradients(x, w_gate, w_up, w_down)


def mlp_train_outputs(draw: Draw, B: int, G: int, K: int, H: int) -> tuple[torch.Tensor, ...]:
    """y and the gradients of x, w_gate, w_up and w_down."""
    weights = (draw.empty(G, K, H), draw.empty(G, K, H), draw.empty(G, H, K))
    return draw.empty(B * G, K), draw.empty(B * G, K), *weights


def mlp_train_flops(B: int, G: int, K: int, H: int) -> float:
    """Nine products."""
    return 3 * mlp_flops(B, G, K, H)


def mlp_train_bytes(B: int, G: int, K: int, H: int) -> float:
    """x, the weights and y's gradient read; y and four gradients written."""
    return 2 * mlp_bytes(B, G, K, H)


def _shapes(width: str) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """(cases, quick) with the wider dimension named ``width``."""
    quick = cases(B=32, G=4, K=64, **{width: 128}, ragged=[False, True])
    shapes = ((2560, 12), (1024, 4), (256, 12))
    real = (cases(B=B, G=G, K=1024, **{width: 3072}, ragged=[False, True]) for B, G in shapes)
    return sum(real, ()), quick


def ladder(B: int) -> bool:
    """The source's own batch, even and ragged."""
    return B == 2560


LINEAR = Suite(
    family="grouped",
    op="linear",
    cases=_shapes("N")[0],
    quick=_shapes("N")[1],
    inputs=linear_inputs,
    reference=linear_reference,
    outputs=linear_output,
    flops=linear_flops,
    bytes=linear_bytes,
    baseline="loop",
    ladder=ladder,
)

LINEAR_TRAIN = Suite(
    family="grouped",
    op="linear_train",
    cases=_shapes("N")[0],
    quick=_shapes("N")[1],
    inputs=linear_train_inputs,
    reference=linear_train_reference,
    outputs=linear_train_outputs,
    flops=linear_train_flops,
    bytes=linear_train_bytes,
    baseline="loop",
    ladder=ladder,
)

MLP = Suite(
    family="grouped",
    op="mlp",
    cases=_shapes("H")[0],
    quick=_shapes("H")[1],
    inputs=mlp_inputs,
    reference=mlp_reference,
    outputs=mlp_output,
    flops=mlp_flops,
    bytes=mlp_bytes,
    baseline="bmm",
    ladder=ladder,
)

MLP_TRAIN = Suite(
    family="grouped",
    op="mlp_train",
    cases=_shapes("H")[0],
    quick=_shapes("H")[1],
    inputs=mlp_train_inputs,
    reference=mlp_train_reference,
    outputs=mlp_train_outputs,
    flops=mlp_train_flops,
    bytes=mlp_train_bytes,
    baseline="bmm",
    ladder=ladder,
)

linear_latency, linear_speedup = LINEAR.series()
linear_train_latency, linear_train_speedup = LINEAR_TRAIN.series()
mlp_latency, mlp_speedup = MLP.series()
mlp_train_latency, mlp_train_speedup = MLP_TRAIN.series()
