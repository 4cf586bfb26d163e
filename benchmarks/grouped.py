"""Grouped linear and gated MLP at the shapes of NVIDIA recsys-examples PR 263, in bf16.

B = 2560, G = 12, 1024 → 3072 is the PR's shape. The other shapes have a tenth of its batch, or fewer groups of fewer
rows. Each shape exists with even groups and with ragged groups, which spread the same number of rows unevenly.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lockstep import Case, Cost, Suite, grid

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.suite.inputs import Draw

#: Offsets of the groups' rows, for ragged groups.
Offsets = tuple[int, ...] | None


def sizes(B: int, G: int) -> tuple[int, ...]:
    """Return the rows of each ragged group: B·G in total, the largest about G times the smallest, not sorted."""
    # 5 and 12, or 5 and 4, share no factor, so the shares are a permutation of 1 … G.
    shares = [1 + 5 * group % G for group in range(G)]
    counts = [B * G * share // sum(shares) for share in shares]
    return (*counts[:-1], B * G - sum(counts[:-1]))


def _rows(new: Draw, B: int, G: int, K: int, ragged: bool) -> dict[str, Any]:
    given: dict[str, Any] = {"x": new.normal(B * G, K)}
    if ragged:
        counts = sizes(B, G)
        given["host_offsets"] = tuple(sum(counts[:group]) for group in range(G + 1))
        given["offsets"] = new.tensor(given["host_offsets"], dtype="int32")
    return given


def _groups(matrix: Tensor, count: int, host_offsets: Offsets) -> list[Tensor]:
    if host_offsets is None:
        return list(matrix.unflatten(0, (-1, count)).unbind(1))
    return list(matrix.split([end - begin for begin, end in pairwise(host_offsets)]))


def _join(parts: list[Tensor], host_offsets: Offsets) -> Tensor:
    import torch

    return torch.cat(parts) if host_offsets else torch.stack(parts, 1).flatten(0, 1)


def _linear_inputs(new: Draw, B: int, G: int, K: int, N: int, ragged: bool) -> dict[str, Any]:
    return {**_rows(new, B, G, K, ragged), "weight": new.normal(G, K, N, scale=K**-0.5)}


def _linear(x: Tensor, weight: Tensor, host_offsets: Offsets) -> Tensor:
    parts = _groups(x.float(), len(weight), host_offsets)
    return _join([part @ own for part, own in zip(parts, weight.float(), strict=True)], host_offsets)


def _mlp_inputs(new: Draw, B: int, G: int, K: int, H: int, ragged: bool) -> dict[str, Any]:
    return {
        **_rows(new, B, G, K, ragged),
        "w_gate": new.normal(G, K, H, scale=K**-0.5),
        "w_up": new.normal(G, K, H, scale=K**-0.5),
        "w_down": new.normal(G, H, K, scale=H**-0.5),
    }


def _mlp(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, host_offsets: Offsets) -> Tensor:
    parts = _groups(x.float(), len(w_gate), host_offsets)
    results = []
    for part, gate_weight, up_weight, down_weight in zip(parts, w_gate, w_up, w_down, strict=True):
        gate = part @ gate_weight.float()
        results.append((gate * gate.sigmoid() * (part @ up_weight.float())) @ down_weight.float())
    return _join(results, host_offsets)


def _trained(
    forward: Callable[..., Tensor], leaves: tuple[Tensor, ...], grad_out: Tensor, host_offsets: Offsets
) -> tuple[Tensor, ...]:
    """Return the result of ``forward`` in float32, and the gradients of ``leaves`` (x and weights) by autograd."""
    leaves = tuple(leaf.float().requires_grad_() for leaf in leaves)
    y = forward(*leaves, host_offsets)
    y.backward(grad_out.float())
    return y.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)


def _shapes(width: str) -> tuple[Case, ...]:
    """Return the cases of one suite; ``width`` names the axis of its wider dimension, N or H."""
    real = (
        grid(B=B, G=G, K=1024, **{width: 3072}, ragged=[False, True]) for B, G in ((2560, 12), (1024, 4), (256, 12))
    )
    return sum(real, ())


class _Grouped(Suite):
    """Base of the four suites of grouped products: family, module, and which inputs are activations."""

    family = "grouped"
    module = "kernels.grouped"
    activations = ("x", "grad_out")

    def full_history(self, B: int) -> bool:
        """Return whether a history measures every variant: at B = 2560, the batch of the PR, even and ragged."""
        return B == 2560


class Linear(_Grouped):
    """One product per group: x [B·G, K], weight [G, K, N], y [B·G, N]."""

    op = "linear"
    baseline = "loop"
    cases = _shapes("N")
    quick = grid(B=32, G=4, K=64, N=128, ragged=[False, True])
    version = "1"
    continues = "6.1", "d7aa152b00d9d556"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, B: int, G: int, K: int, N: int, ragged: bool) -> dict[str, Any]:
        """Draw x and a weight that makes y of order one; ragged groups also have offsets."""
        return _linear_inputs(new, B, G, K, N, ragged)

    def buffers(self, new: Draw, B: int, G: int, N: int) -> Tensor:
        """Return a buffer for y."""
        return new.empty(B * G, N)

    def reference(self, x: Tensor, weight: Tensor, host_offsets: Offsets = None) -> Tensor:
        """Return y in float32, with one product per group."""
        return _linear(x, weight, host_offsets)

    def cost(self, B: int, G: int, K: int, N: int) -> Cost:
        """Count two operations for each multiply-add; x and weight are read, y is written."""
        return Cost(2.0 * B * G * K * N, 2.0 * G * (B * K + K * N + B * N))


class LinearTrain(_Grouped):
    """``Linear`` with the gradients of x and weight."""

    op = "linear_train"
    baseline = "loop"
    cases = Linear.cases
    quick = Linear.quick
    version = "1"
    continues = "6.1", "15e33b89c8e8ce9a"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, B: int, G: int, K: int, N: int, ragged: bool) -> dict[str, Any]:
        """Draw the inputs of ``Linear``, and the gradient of y [B·G, N]."""
        return {**_linear_inputs(new, B, G, K, N, ragged), "grad_out": new.normal(B * G, N)}

    def buffers(self, new: Draw, B: int, G: int, K: int, N: int) -> tuple[Tensor, ...]:
        """Return buffers for y and the gradients of x and weight."""
        return new.empty(B * G, N), new.empty(B * G, K), new.empty(G, K, N)

    def reference(
        self, x: Tensor, weight: Tensor, grad_out: Tensor, host_offsets: Offsets = None
    ) -> tuple[Tensor, ...]:
        """Return y and the gradients of x and weight in float32."""
        return _trained(_linear, (x, weight), grad_out, host_offsets)

    def cost(self, B: int, G: int, K: int, N: int) -> Cost:
        """Count three products; x, weight and y's gradient are read, y and two gradients are written."""
        return Cost(6.0 * B * G * K * N, 4.0 * G * (B * K + K * N + B * N))


class Mlp(_Grouped):
    """A gated MLP per group: x [B·G, K], w_gate and w_up [G, K, H], w_down [G, H, K], y [B·G, K]."""

    op = "mlp"
    baseline = "bmm"
    cases = _shapes("H")
    quick = grid(B=32, G=4, K=64, H=128, ragged=[False, True])
    version = "1"
    continues = "6.1", "50311b8d4e98d6c4"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, B: int, G: int, K: int, H: int, ragged: bool) -> dict[str, Any]:
        """Draw x and weights that make y of order one; ragged groups also have offsets."""
        return _mlp_inputs(new, B, G, K, H, ragged)

    def buffers(self, new: Draw, B: int, G: int, K: int) -> Tensor:
        """Return a buffer for y."""
        return new.empty(B * G, K)

    def reference(
        self, x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, host_offsets: Offsets = None
    ) -> Tensor:
        """Return y in float32, without rounding the hidden layer in between."""
        return _mlp(x, w_gate, w_up, w_down, host_offsets)

    def cost(self, B: int, G: int, K: int, H: int) -> Cost:
        """Count three products, without the activation or the hidden layer's bytes, which need not leave the chip."""
        return Cost(6.0 * B * G * K * H, 2.0 * G * (2 * B * K + 3 * K * H))


class MlpTrain(_Grouped):
    """``Mlp`` with the gradients of x and of the weights."""

    op = "mlp_train"
    baseline = "bmm"
    cases = Mlp.cases
    quick = Mlp.quick
    version = "1"
    continues = "6.1", "3a391a23eebf477b"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, B: int, G: int, K: int, H: int, ragged: bool) -> dict[str, Any]:
        """Draw the inputs of ``Mlp``, and the gradient of y [B·G, K]."""
        return {**_mlp_inputs(new, B, G, K, H, ragged), "grad_out": new.normal(B * G, K)}

    def buffers(self, new: Draw, B: int, G: int, K: int, H: int) -> tuple[Tensor, ...]:
        """Return buffers for y and the gradients of x, w_gate, w_up and w_down."""
        weights = (new.empty(G, K, H), new.empty(G, K, H), new.empty(G, H, K))
        return new.empty(B * G, K), new.empty(B * G, K), *weights

    def reference(
        self,
        x: Tensor,
        w_gate: Tensor,
        w_up: Tensor,
        w_down: Tensor,
        grad_out: Tensor,
        host_offsets: Offsets = None,
    ) -> tuple[Tensor, ...]:
        """Return y and the gradients of x, w_gate, w_up and w_down in float32."""
        return _trained(_mlp, (x, w_gate, w_up, w_down), grad_out, host_offsets)

    def cost(self, B: int, G: int, K: int, H: int) -> Cost:
        """Count nine products; x, the weights and y's gradient are read, y and four gradients are written."""
        return Cost(18.0 * B * G * K * H, 4.0 * G * (2 * B * K + 3 * K * H))
