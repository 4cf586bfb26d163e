"""Benchmark definition of ``norm_linear``: the small batches of ``linear`` after the RMSNorm that produces them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep import Cost, Suite, grid

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.suite.inputs import Draw

ELEMENT_BYTES = 2
EPSILON = 1e-6


class NormLinear(Suite):
    """``y = rms_norm(x, gain) @ weight.T`` in bfloat16."""

    module = "kernels.norm_linear"
    baseline = "torch"
    cases = grid(M=[1, 2, 4, 8, 16, 32, 64], K=4096, N=2048) + grid(M=[1, 8, 32], K=7168, N=2112)
    quick = grid(M=[1, 32], K=512, N=256)
    version = "1"
    continues = "6.1", "f7e244d2d9b132cb"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, M: int, K: int, N: int) -> dict[str, Tensor]:
        """Draw ``x [M, K]``, ``gain [K]`` around 1, and ``weight [N, K]`` scaled so that the result is of order 1."""
        return {
            "x": new.normal(M, K),
            "gain": new.uniform(K, low=0.5, high=1.5, dtype="bfloat16"),
            "weight": new.normal(N, K, scale=K**-0.5),
        }

    def buffers(self, new: Draw, M: int, N: int) -> Tensor:
        """Return a buffer ``[M, N]`` for the result."""
        return new.empty(M, N)

    def reference(self, x: Tensor, gain: Tensor, weight: Tensor) -> Tensor:
        """Return the result in float32, without rounding the norm before the product."""
        values = x.float()
        normed = values * (values.square().mean(1, keepdim=True) + EPSILON).rsqrt() * gain.float()
        return normed @ weight.float().t()

    def cost(self, M: int, K: int, N: int) -> Cost:
        """Count a multiply and an add for each of M·N·K, without the norm. The normed x need not leave the chip."""
        return Cost(2.0 * M * N * K, ELEMENT_BYTES * (M * K + K + N * K + M * N))

    def full_history(self, K: int, N: int) -> bool:
        """Return whether a history measures every variant: at the weight of the vLLM issue in ``benchmarks.linear``."""
        return (K, N) == (4096, 2048)
