"""Benchmark definition of ``linear``: small batches through one weight, as in the layers of a decoder.

Shapes: in_features 4096, out_features 2048 and batches 1 … 4096 come from the vLLM issue "torch linear is not optimal
for batch ≤ 32" (Qwen3-Next, gated delta net). The serving shapes are projections of DeepSeek-V3's size (hidden 7168,
query rank 1536).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep import Cost, Suite, grid

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.suite.inputs import Draw

ELEMENT_BYTES = 2


class Linear(Suite):
    """``y = x @ weight.T (+ bias)`` in bfloat16."""

    module = "kernels.linear"
    baseline = "torch"
    activations = ("x",)
    cases = (
        *grid(M=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096], K=4096, N=2048),
        *grid(M=[1, 8, 32, 64], K=4096, N=2048, bias=True),
        *grid(M=[1, 8, 32, 256], K=7168, N=[576, 2112, 3648]),
        *grid(M=[1, 8, 32, 256], K=1536, N=3072),
    )
    quick = grid(M=[1, 32], K=512, N=256) + grid(M=32, K=512, N=256, bias=True)
    version = "1"
    continues = "6.1", "f2da2da6ca9f5f1c"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, M: int, K: int, N: int, bias: bool = False) -> dict[str, Tensor]:
        """Draw ``x [M, K]``, ``weight [N, K]`` that makes the result of order 1, and ``bias [N]`` if requested."""
        tensors = {"x": new.normal(M, K), "weight": new.normal(N, K, scale=K**-0.5)}
        if bias:
            tensors["bias"] = new.normal(N)
        return tensors

    def buffers(self, new: Draw, M: int, N: int) -> Tensor:
        """Return a buffer ``[M, N]`` for the result."""
        return new.empty(M, N)

    def reference(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the product in float32, plus the bias if there is one."""
        product = x.float() @ weight.float().t()
        return product if bias is None else product + bias.float()

    def cost(self, M: int, K: int, N: int, bias: bool = False) -> Cost:
        """Count a multiply and an add for each of M·N·K, an add for the bias, and the bytes of each tensor once."""
        return Cost(2.0 * M * N * K + M * N * bias, ELEMENT_BYTES * (M * K + N * K + M * N + N * bias))

    def skips(self, variant: str, M: int, K: int, N: int, bias: bool = False) -> str:
        """Return why a variant is skipped: compiling takes up to a minute a shape, so two shapes must do.

        One row compiles to a separate kernel, and more rows go to cuBLAS, so two shapes show both.
        """
        if variant not in ("compile", "max_autotune") or ((K, N) == (4096, 2048) and M in (1, 8) and not bias):
            return ""
        return "compiling takes up to a minute a shape"

    def full_history(self, M: int, K: int, N: int, bias: bool = False) -> bool:
        """Return whether a history measures every variant: at up to 64 rows and the weight of the vLLM issue."""
        return (K, N) == (4096, 2048) and M <= 64 and not bias

    warm_history = full_history
