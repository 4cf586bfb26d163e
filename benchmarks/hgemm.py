"""The ruler for ``hgemm``: square and flat half-precision products, as minfer's ladder measures them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep import Case, Suite, cases

if TYPE_CHECKING:
    from lockstep.suite.inputs import Draw

ELEMENT_BYTES = 2


def inputs(draw: Draw, M: int, N: int, K: int, alpha: float = 1.0, beta: float = 0.0) -> dict[str, Any]:
    """``a [M, K]``, ``b [K, N]`` scaled so that the product is of order 1, ``c [M, N]`` where beta reads it."""
    named: dict[str, Any] = {
        "a": draw.normal(M, K, dtype="float16"),
        "b": draw.normal(K, N, dtype="float16", scale=K**-0.5),
        "alpha": alpha,
        "beta": beta,
    }
    return named | ({"c": draw.normal(M, N, dtype="float16")} if beta else {})


def outputs(draw: Draw, M: int, N: int) -> Any:
    """``[M, N]``."""
    return draw.empty(M, N, dtype="float16")


def reference(a: Any, b: Any, c: Any = None, alpha: float = 1.0, beta: float = 0.0) -> Any:
    """The product in float32."""
    product = a.float() @ b.float() * alpha
    return product if c is None else product + c.float() * beta


def flops(M: int, N: int, K: int) -> float:
    """A multiply and an add for each of M·N·K; scaling is not counted, as in the source."""
    return 2.0 * M * N * K


def moved(M: int, N: int, K: int, beta: float = 0.0) -> float:
    """Bytes: a, b and (with beta) c read once, the result written once."""
    return float(ELEMENT_BYTES * (M * K + K * N + M * N * (2 if beta else 1)))


def square(size: int, **scales: float) -> Case:
    """The case of a square product."""
    return Case(M=size, N=size, K=size, **scales)


QUICK = (square(256), square(256, alpha=0.5, beta=2))

SUITE = Suite(
    family="hgemm",
    cases=tuple(square(size) for size in (512, 1024, 2048, 4096, 8192))
    + cases(M=8192, N=8192, K=[512, 1024, 4096])
    + tuple(
        square(size, alpha=alpha, beta=beta) for size in (2048, 4096) for alpha, beta in ((1, 1), (2, 3), (0.5, 2))
    ),
    quick=QUICK,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    flops=flops,
    bytes=moved,
    baseline="torch",
    ladder=lambda M, N, K, alpha=1.0, beta=0.0: M == N == K and (alpha, beta) == (1, 0),
    # Rounding to float16 alone is 3e-4 of the norm.
    tolerance=2e-3,
)
latency, speedup = SUITE.series()
