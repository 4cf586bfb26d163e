"""Backends for the products of the ``grouped`` operations.

``kernels.grouped`` checks every argument before it calls a method here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import silu

from kernels.common.devices import interpreted, require_triton
from kernels.common.warp_specialized_product import TileConfig
from kernels.grouped import tma_kernels as grouped_tma
from kernels.grouped import triton_kernels as grouped_triton
from kernels.grouped import warp_specialized_kernels as grouped_specialized
from kernels.grouped.group_layouts import Groups

Pair = tuple[Tensor, Tensor]


class Products(ABC):
    """A backend for grouped products of T rows in G groups. Every method writes its results into given tensors."""

    @abstractmethod
    def product(
        self, a: Tensor, weight: Tensor, groups: Groups, out: Tensor, too: Pair | None = None, follows: bool = True
    ) -> None:
        """Write ``out = a @ weight[g]``, plus ``too[0] @ too[1][g]``: [T, K] and [G, K, N] (any strides) into [T, N].

        ``follows`` states whether the preceding call writes an operand of this call. Only backends with PDL use
        ``follows``.
        """

    @abstractmethod
    def grad_weight(self, x: Tensor, grad: Tensor, groups: Groups, out: Tensor, follows: bool = True) -> None:
        """Write ``out[g] = x.T @ grad`` over the rows of g: [T, K] and [T, N] into [G, K, N]."""

    def activate(self, gate: Tensor, up: Tensor, out: Tensor) -> None:
        """Write ``out = silu(gate) · up``."""
        torch.mul(silu(gate), up, out=out)

    def activate_grad(self, gate: Tensor, up: Tensor, grad: Tensor, of_gate: Tensor, of_up: Tensor) -> None:
        """Write the gradients of gate and up, from the gradient of the result of ``activate``."""
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=of_gate)
        torch.mul(grad, silu(gate), out=of_up)

    def gated(
        self, x: Tensor, w_gate: Tensor, w_up: Tensor, groups: Groups, hidden: Tensor, keep: Pair | None = None
    ) -> None:
        """Write ``hidden = silu(x @ w_gate[g]) · (x @ w_up[g])``. ``keep`` receives both products for the backward
        pass.
        """
        gate, up = keep or (torch.empty_like(hidden), torch.empty_like(hidden))
        self.product(x, w_gate, groups, gate)
        self.product(x, w_up, groups, up)
        self.activate(gate, up, hidden)

    def gated_grad(
        self, grad_out: Tensor, w_down: Tensor, gate: Tensor, up: Tensor, groups: Groups, of_gate: Tensor, of_up: Tensor
    ) -> None:
        """Write the gradients of the gate and up products, from the gradient of the output."""
        of_hidden = torch.empty_like(gate)
        self.product(grad_out, w_down.transpose(1, 2), groups, of_hidden)
        self.activate_grad(gate, up, of_hidden, of_gate, of_up)


class Loop(Products):
    """One product for each group, then a stack of the results: the "before" of recsys-examples PR 263."""

    def product(
        self, a: Tensor, weight: Tensor, groups: Groups, out: Tensor, too: Pair | None = None, follows: bool = True
    ) -> None:
        """Compute one product for each group, then join the results in ``out``."""
        parts = self.parts([groups.of(a, g) for g in range(groups.count)], weight)
        if groups.offsets is None:
            torch.stack(parts, dim=1, out=out.view(-1, groups.count, out.shape[1]))
        else:
            torch.cat(parts, out=out)
        if too:
            other = torch.empty_like(out)
            self.product(*too, groups, other)
            out += other

    def grad_weight(self, x: Tensor, grad: Tensor, groups: Groups, out: Tensor, follows: bool = True) -> None:
        """Write the gradient of each group's weight with one product for each group."""
        for g in range(groups.count):
            torch.mm(groups.of(x, g).t(), groups.of(grad, g), out=out[g])

    def parts(self, rows: list[Tensor], weight: Tensor) -> list[Tensor]:
        """Return the product of each group."""
        return [part @ own for part, own in zip(rows, weight, strict=True)]


class Foreach(Loop):
    """``Loop`` with one call of ``torch._foreach_mm`` for all groups, which came after torch 2.11."""

    def parts(self, rows: list[Tensor], weight: Tensor) -> list[Tensor]:
        """Return the product of each group."""
        multiply = getattr(torch, "_foreach_mm", None)
        if multiply is None:
            raise NotImplementedError(f"torch {torch.__version__} has no _foreach_mm")
        products: list[Tensor] = multiply(rows, list(weight))
        return products


class Fused(Products):
    """Base of backends with one Triton kernel for the activation and one for its gradient."""

    def activate(self, gate: Tensor, up: Tensor, out: Tensor) -> None:
        """Write ``silu(gate) · up`` with one Triton kernel, or with torch on a CPU."""
        if _has_triton(gate):
            grouped_triton.activate(gate, up, out)
        else:
            super().activate(gate, up, out)

    def activate_grad(self, gate: Tensor, up: Tensor, grad: Tensor, of_gate: Tensor, of_up: Tensor) -> None:
        """Write the gradients of gate and up with one Triton kernel, or with torch on a CPU."""
        if _has_triton(gate):
            grouped_triton.activate_grad(gate, up, grad, of_gate, of_up)
        else:
            super().activate_grad(gate, up, grad, of_gate, of_up)


def _has_triton(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu" or interpreted()


class Bmm(Fused):
    """One strided batched product that writes the permuted result in place: the PR's "after". Even groups only."""

    def product(
        self, a: Tensor, weight: Tensor, groups: Groups, out: Tensor, too: Pair | None = None, follows: bool = True
    ) -> None:
        """Multiply all groups with one batched product; add the product ``too`` with another batched product."""
        torch.bmm(groups.batch(a), weight, out=groups.batch(out))
        if too:
            groups.batch(out).baddbmm_(groups.batch(too[0]), too[1])

    def grad_weight(self, x: Tensor, grad: Tensor, groups: Groups, out: Tensor, follows: bool = True) -> None:
        """Write the gradients of all groups' weights with one batched product."""
        torch.bmm(groups.batch(x).transpose(1, 2), groups.batch(grad), out=out)


class Triton(Fused):
    """Triton kernels, for even and for ragged groups."""

    def product(
        self, a: Tensor, weight: Tensor, groups: Groups, out: Tensor, too: Pair | None = None, follows: bool = True
    ) -> None:
        """Multiply all groups in one launch of ``triton_kernels.product``."""
        require_triton(a, "triton")
        grouped_triton.product(a, weight, groups.offsets, out, too)

    def grad_weight(self, x: Tensor, grad: Tensor, groups: Groups, out: Tensor, follows: bool = True) -> None:
        """Write the gradients of all groups' weights in one launch of ``triton_kernels.grad_weight``."""
        grouped_triton.grad_weight(x, grad, groups.offsets, out)


class Tma(Triton):
    """Persistent kernels fed by TMA (``kernels.grouped.tma_kernels``), for widths that are multiples of 256 and 64."""

    def product(
        self, a: Tensor, weight: Tensor, groups: Groups, out: Tensor, too: Pair | None = None, follows: bool = True
    ) -> None:
        """Multiply all groups in one launch of ``tma_kernels.product``; refuse a second product ``too``."""
        require_triton(a, "tma")
        if too:
            raise NotImplementedError(
                "tma computes one product a launch, and adds no other: pack both weights with pack_gate_up"
            )
        grouped_tma.product(a, weight, groups, out, follows=follows)

    def grad_weight(self, x: Tensor, grad: Tensor, groups: Groups, out: Tensor, follows: bool = True) -> None:
        """Write the gradients of all groups' weights in one launch of ``tma_kernels.grad_weight``."""
        grouped_tma.grad_weight(x, grad, groups, out, follows=follows)


class Specialized(Triton):
    """Warp-specialized kernels with one tile config (``warp_specialized_kernels``), on Hopper."""

    def __init__(self, config: TileConfig) -> None:
        self.config = config

    def product(
        self, a: Tensor, weight: Tensor, groups: Groups, out: Tensor, too: Pair | None = None, follows: bool = True
    ) -> None:
        """Multiply all groups in one launch of ``warp_specialized_kernels.product``; refuse a product ``too``."""
        if too:
            raise NotImplementedError(
                "warp_specialized computes one product a launch, and adds no other: pack both weights with pack_gate_up"
            )
        grouped_specialized.product(a, weight, groups, out, config=self.config, follows=follows)

    def grad_weight(self, x: Tensor, grad: Tensor, groups: Groups, out: Tensor, follows: bool = True) -> None:
        """Write the gradients of all groups' weights in one launch; those of ragged groups by the kernel of ``Tma``."""
        if groups.offsets is not None:
            grouped_tma.grad_weight(x, grad, groups, out, follows=follows)
        else:
            grouped_specialized.grad_weight(x, grad, groups, out, config=self.config, follows=follows)


LOOP = Loop()
FOREACH = Foreach()
BMM = Bmm()
TRITON = Triton()
TMA = Tma()
