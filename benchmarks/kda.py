"""Kimi Delta Attention projections at the shapes of SGLang PR 17801, in bf16.

The hidden size 2304 and 8 heads of 128 a rank are the PR's; 4 heads a rank is its shape on twice the
GPUs, where the slice of f_a is not aligned to 16 bytes. Decoding has M = 1 … 512 tokens, prefill thousands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep import Suite, cases

if TYPE_CHECKING:
    import torch

    from lockstep.suite.inputs import Draw

RANK = 128


def inputs(draw: Draw, M: int, K: int, heads: int) -> dict[str, Any]:
    """x [M, K] and eight weights [out, in], scaled so that every output is of order one."""
    width = heads * RANK
    rows = {"w_q": width, "w_k": width, "w_v": width, "w_beta": heads, "w_fa": RANK, "w_ga": RANK}
    return {
        "x": draw.normal(M, K),
        **{name: draw.normal(count, K, scale=K**-0.5) for name, count in rows.items()},
        "w_fb": draw.normal(width, RANK, scale=RANK**-0.5),
        "w_gb": draw.normal(width, RANK, scale=RANK**-0.5),
    }


def reference(
    x: torch.Tensor,
    w_q: torch.Tensor,
    w_k: torch.Tensor,
    w_v: torch.Tensor,
    w_beta: torch.Tensor,
    w_fa: torch.Tensor,
    w_ga: torch.Tensor,
    w_fb: torch.Tensor,
    w_gb: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """(q, k, v, beta, f, g) in float32; f_a and g_a are not rounded in between."""
    x = x.float()
    q, k, v, beta, f_a, g_a = (x @ weight.float().T for weight in (w_q, w_k, w_v, w_beta, w_fa, w_ga))
    return q, k, v, beta, f_a @ w_fb.float().T, g_a @ w_gb.float().T


def outputs(draw: Draw, M: int, heads: int) -> torch.Tensor:
    """One flat buffer: q, k, v, beta, f_a, g_a and f, g, laid out as each variant likes."""
    return draw.empty(M * (5 * heads * RANK + heads + 2 * RANK))


def flops(M: int, K: int, heads: int) -> float:
    """Two for each multiply-add of the eight products."""
    return 2.0 * M * (K * (3 * heads * RANK + heads + 2 * RANK) + RANK * 2 * heads * RANK)


def bytes_moved(M: int, K: int, heads: int) -> float:
    """x and the weights once, the six results once; f_a and g_a need not leave the chip."""
    width = heads * RANK
    weights = K * (3 * width + heads + 2 * RANK) + 2 * width * RANK
    return 2.0 * (M * K + weights + M * (5 * width + heads))


def decoding(M: int, heads: int) -> bool:
    """The decoding batches of one GPU's heads."""
    return M <= 512 and heads == 8


SUITE = Suite(
    family="kda",
    cases=cases(M=[1, 2, 4, 8, 16, 32, 64, 128, 512, 4096, 8192, 16384], K=2304, heads=8)
    + cases(M=[1, 16, 4096], K=2304, heads=4),
    quick=cases(M=[1, 16], K=2304, heads=8),
    inputs=inputs,
    reference=reference,
    outputs=outputs,
    flops=flops,
    bytes=bytes_moved,
    baseline="eight",
    ladder=decoding,
    warm=decoding,
    # What the source went to, and what `best` is held against.
    always=("merged", "best"),
)

latency, speedup = SUITE.series()
