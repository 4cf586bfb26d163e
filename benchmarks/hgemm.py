"""Benchmark definition of ``hgemm``: square and flat half-precision products at the sizes that minfer measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep import Case, Cost, Suite, grid

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.suite.inputs import Draw

ELEMENT_BYTES = 2


def square(size: int, **scales: float) -> Case:
    """Return the case of a product of two square matrices; ``scales`` are alpha and beta."""
    return Case(M=size, N=size, K=size, **scales)


class Hgemm(Suite):
    """``alpha · a @ b + beta · c`` in float16."""

    module = "kernels.hgemm"
    baseline = "torch"
    # Rounding to float16 alone is 3e-4 of the norm.
    tolerance = 2e-3
    cases = (
        *(square(size) for size in (512, 1024, 2048, 4096, 8192)),
        *grid(M=8192, N=8192, K=[512, 1024, 4096]),
        *(square(size, alpha=alpha, beta=beta) for size in (2048, 4096) for alpha, beta in ((1, 1), (2, 3), (0.5, 2))),
    )
    quick = (square(256), square(256, alpha=0.5, beta=2))
    version = "1"
    continues = "6.1", "63763b919247ea36"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, M: int, N: int, K: int, alpha: float = 1.0, beta: float = 0.0) -> dict[str, Any]:
        """Draw ``a [M, K]``, ``b [K, N]`` that makes the product of order 1, and ``c [M, N]`` if beta is not 0."""
        named: dict[str, Any] = {
            "a": new.normal(M, K, dtype="float16"),
            "b": new.normal(K, N, dtype="float16", scale=K**-0.5),
            "alpha": alpha,
            "beta": beta,
        }
        return named | ({"c": new.normal(M, N, dtype="float16")} if beta else {})

    def buffers(self, new: Draw, M: int, N: int) -> Tensor:
        """Return a float16 buffer ``[M, N]`` for the result."""
        return new.empty(M, N, dtype="float16")

    def reference(self, a: Tensor, b: Tensor, c: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
        """Return ``alpha · a @ b + beta · c`` in float32."""
        product = a.float() @ b.float() * alpha
        return product if c is None else product + c.float() * beta

    def cost(self, M: int, N: int, K: int, beta: float = 0.0) -> Cost:
        """Count a multiply and an add for each of M·N·K, as minfer does; c is read only if beta is not 0."""
        return Cost(2.0 * M * N * K, ELEMENT_BYTES * (M * K + K * N + M * N * (2 if beta else 1)))

    def full_history(self, M: int, N: int, K: int, alpha: float = 1.0, beta: float = 0.0) -> bool:
        """Return whether a history measures every variant: at square products with alpha 1 and beta 0."""
        return M == N == K and (alpha, beta) == (1, 0)
