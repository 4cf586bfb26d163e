"""Float16 activations × int4 weights: ``y = x @ ((codes − 8) · scales)``, x [M, K], y [M, N].

Shapes and the comparison follow the thread on optimising Marlin for the GEMM regime: groups of 128 rows and one
scale per output channel, M from one token to a prefill. The baseline keeps the same weight in float16.
"""

from __future__ import annotations

from typing import Any

from lockstep import Limit, Suite, cases


def group_count(K: int, group: int | str) -> int:
    """Rows of the scales: one for ``group="channel"``."""
    return 1 if group == "channel" else K // int(group)


def inputs(draw: Any, M: int, K: int, N: int, group: int | str) -> dict[str, Any]:
    """x float16 [M, K], codes uint8 [K, N] in 0 … 15, scales float16 [groups, N].

    The scales vary by a factor of three and make outputs of order one: uniform codes less 8 have a mean square of
    21.5, so a scale near 1 / √(21.5 K) does.
    """
    unit = (21.5 * K) ** -0.5
    return {
        "x": draw.normal(M, K, dtype="float16"),
        "codes": draw.integers(K, N, low=0, high=16, dtype="uint8"),
        "scales": draw.uniform(group_count(K, group), N, low=0.5 * unit, high=1.5 * unit, dtype="float16"),
    }


def reference(x: Any, codes: Any, scales: Any) -> Any:
    """In float32, the weight not rounded."""
    weight = (codes.float() - 8) * scales.float().repeat_interleave(len(codes) // len(scales), dim=0)
    return x.float() @ weight


def ladder(K: int, N: int, group: int) -> bool:
    """Marlin's weight."""
    return (K, N, group) == (8192, 8192, 128)


SUITE = Suite(
    family="w4a16",
    cases=(
        *cases(M=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096], K=8192, N=8192, group=128),
        *cases(M=[1, 16, 32, 64, 128, 256], K=4096, N=14336, group=128),
        *cases(M=[1, 16, 32, 64, 128, 256], K=4096, N=4096, group=128),
        *cases(M=[1, 16, 64, 256, 4096], K=8192, N=8192, group="channel"),
    ),
    quick=cases(M=[1, 16], K=512, N=512, group=128),
    inputs=inputs,
    reference=reference,
    outputs=lambda draw, M, N: draw.empty(M, N, dtype="float16"),
    flops=lambda M, K, N: 2 * M * K * N,
    bytes=lambda M, K, N, group: 2 * M * K + K * N / 2 + 2 * group_count(K, group) * N + 2 * M * N,
    baseline="fp16",
    ladder=ladder,
    # bfloat16 inputs and outputs (int4pack) come to 2e-3; everything in float16 stays under 5e-4.
    tolerance=5e-3,
    # Where more would tell nothing: slow variants take most of a round's time.
    limits={
        "int4pack": Limit("8 to 28 times slower than fp16 beyond 64 tokens", allows=lambda M: M <= 64),
        "triton": Limit("8 times slower than fp16 beyond 256 tokens", allows=lambda M: M <= 256),
        "dequant": Limit("1 to 8 tokens take what 16 take: the weight's time", allows=lambda M: M >= 16),
    },
)

latency, speedup = SUITE.series()
