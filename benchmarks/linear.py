"""The ruler for ``linear``: small batches through one weight, as a decoder's layers see them.

Shapes: in_features 4096, out_features 2048 and batches 1 … 4096 are those of the vLLM issue "torch linear is
not optimal for batch ≤ 32" (Qwen3-Next, gated delta net); the serving shapes are projections of
DeepSeek-V3's size (hidden 7168, query rank 1536).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep import Limit, Suite, cases

if TYPE_CHECKING:
    from lockstep.suite.inputs import Draw

ELEMENT_BYTES = 2


def inputs(draw: Draw, M: int, K: int, N: int, bias: bool = False) -> dict[str, Any]:
    """``x [M, K]``, ``weight [N, K]`` scaled so that the result is of order 1, and ``bias [N]`` where asked for."""
    tensors = {"x": draw.normal(M, K), "weight": draw.normal(N, K, scale=K**-0.5)}
    if bias:
        tensors["bias"] = draw.normal(N)
    return tensors


def outputs(draw: Draw, M: int, N: int) -> Any:
    """``[M, N]``."""
    return draw.empty(M, N)


def reference(x: Any, weight: Any, bias: Any = None) -> Any:
    """The product in float32, plus the bias where there is one."""
    product = x.float() @ weight.float().t()
    return product if bias is None else product + bias.float()


def flops(M: int, K: int, N: int, bias: bool = False) -> float:
    """A multiply and an add for each of M·N·K, and an add for the bias."""
    return 2.0 * M * N * K + M * N * bias


def moved(M: int, K: int, N: int, bias: bool = False) -> float:
    """Bytes: x, weight and bias read once, the result written once."""
    return float(ELEMENT_BYTES * (M * K + N * K + M * N + N * bias))


def compiles(M: int, K: int, N: int, bias: bool = False) -> bool:
    """Two shapes show what torch.compile does: a kernel of its own for one row, cuBLAS for more. Each costs seconds."""
    return (K, N) == (4096, 2048) and M in (1, 8) and not bias


def small_batch(M: int, K: int, N: int, bias: bool = False) -> bool:
    """The small batches of the source's own weight."""
    return (K, N) == (4096, 2048) and M <= 64 and not bias


QUICK = cases(M=[1, 32], K=512, N=256) + cases(M=32, K=512, N=256, bias=True)
FEW_SHAPES = Limit("compiling takes up to a minute a shape", compiles)

SUITE = Suite(
    family="linear",
    cases=cases(M=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096], K=4096, N=2048)
    + cases(M=[1, 8, 32, 64], K=4096, N=2048, bias=True)
    + cases(M=[1, 8, 32, 256], K=7168, N=[576, 2112, 3648])
    + cases(M=[1, 8, 32, 256], K=1536, N=3072),
    quick=QUICK,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    flops=flops,
    bytes=moved,
    baseline="torch",
    limits={"compile": FEW_SHAPES, "max_autotune": FEW_SHAPES},
    ladder=small_batch,
    warm=small_batch,
)
latency, speedup = SUITE.series()
