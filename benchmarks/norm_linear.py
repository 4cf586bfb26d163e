"""The ruler for ``norm_linear``: the small batches of ``linear`` behind the RMSNorm that produces them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep import Suite, cases

if TYPE_CHECKING:
    from lockstep.suite.inputs import Draw

ELEMENT_BYTES = 2
EPSILON = 1e-6


def inputs(draw: Draw, M: int, K: int, N: int) -> dict[str, Any]:
    """``x [M, K]``, ``gain [K]`` around 1, ``weight [N, K]`` scaled so that the result is of order 1."""
    return {
        "x": draw.normal(M, K),
        "gain": draw.uniform(K, low=0.5, high=1.5, dtype="bfloat16"),
        "weight": draw.normal(N, K, scale=K**-0.5),
    }


def outputs(draw: Draw, M: int, N: int) -> Any:
    """``[M, N]``."""
    return draw.empty(M, N)


def reference(x: Any, gain: Any, weight: Any) -> Any:
    """In float32; the norm is not rounded before the product."""
    values = x.float()
    normed = values * (values.square().mean(1, keepdim=True) + EPSILON).rsqrt() * gain.float()
    return normed @ weight.float().t()


def flops(M: int, K: int, N: int) -> float:
    """A multiply and an add for each of M·N·K; the norm's few are not counted."""
    return 2.0 * M * N * K


def moved(M: int, K: int, N: int) -> float:
    """Bytes: x, gain and weight read once, the result written once; the normed x need not leave the chip."""
    return float(ELEMENT_BYTES * (M * K + K + N * K + M * N))


SUITE = Suite(
    family="norm_linear",
    cases=cases(M=[1, 2, 4, 8, 16, 32, 64], K=4096, N=2048) + cases(M=[1, 8, 32], K=7168, N=2112),
    quick=cases(M=[1, 32], K=512, N=256),
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    flops=flops,
    bytes=moved,
    baseline="torch",
    ladder=lambda K, N: (K, N) == (4096, 2048),
)
latency, speedup = SUITE.series()
