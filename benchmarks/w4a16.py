"""Float16 activations × int4 weights: ``y = x @ ((codes − 8) · scales)``, x [M, K], y [M, N].

Shapes and the comparison follow the thread on optimising Marlin for the GEMM regime: groups of 128 rows or one scale
per output channel, M from one token to a prefill. The baseline keeps the same weight in float16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep import Cost, Suite, grid

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.suite.inputs import Draw


def group_count(K: int, group: int | str) -> int:
    """Return the number of rows of the scales: one for ``group="channel"``."""
    return 1 if group == "channel" else K // int(group)


class W4A16(Suite):
    """Weights of 4 bits with a scale for each group of rows, or one for each output channel."""

    module = "kernels.w4a16"
    baseline = "fp16"
    # bfloat16 inputs and outputs (int4pack) have an error of 2e-3; everything in float16 stays below 5e-4.
    tolerance = 5e-3
    cases = (
        *grid(M=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096], K=8192, N=8192, group=128),
        *grid(M=[1, 16, 32, 64, 128, 256], K=4096, N=14336, group=128),
        *grid(M=[1, 16, 32, 64, 128, 256], K=4096, N=4096, group=128),
        *grid(M=[1, 16, 64, 256, 4096], K=8192, N=8192, group="channel"),
    )
    quick = grid(M=[1, 16], K=512, N=512, group=128)
    version = "1"
    continues = "6.1", "ff243d246eac22c8"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, M: int, K: int, N: int, group: int | str) -> dict[str, Tensor]:
        """Draw x float16 [M, K], codes uint8 [K, N] in 0 … 15, and scales float16 [groups, N].

        The scales vary by a factor of three and make outputs of order one: uniform codes less 8 have a mean square of
        21.5, so the scales are near 1 / √(21.5 K).
        """
        unit = (21.5 * K) ** -0.5
        return {
            "x": new.normal(M, K, dtype="float16"),
            "codes": new.integers(K, N, low=0, high=16, dtype="uint8"),
            "scales": new.uniform(group_count(K, group), N, low=0.5 * unit, high=1.5 * unit, dtype="float16"),
        }

    def buffers(self, new: Draw, M: int, N: int) -> Tensor:
        """Return a float16 buffer ``[M, N]`` for the result."""
        return new.empty(M, N, dtype="float16")

    def reference(self, x: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
        """Return y in float32, without rounding the weight."""
        weight = (codes.float() - 8) * scales.float().repeat_interleave(len(codes) // len(scales), dim=0)
        return x.float() @ weight

    def cost(self, M: int, K: int, N: int, group: int | str) -> Cost:
        """Count a multiply and an add for each of M·N·K, half a byte for each weight, and two bytes for every other
        element.
        """
        return Cost(2 * M * K * N, 2 * M * K + K * N / 2 + 2 * group_count(K, group) * N + 2 * M * N)

    def skips(self, variant: str, M: int) -> str:
        """Return why a variant is skipped: at this size it would take most of the time and show nothing new."""
        match variant:
            case "int4pack" if M > 64:
                return "8 to 28 times slower than fp16 beyond 64 tokens"
            case "dequant" if M < 16:
                return "1 to 8 tokens take as long as 16, which is measured: unpacking the weight takes the time"
        return ""

    def full_history(self, K: int, N: int, group: int | str) -> bool:
        """Return whether a history measures every variant: at 8192 × 8192 in groups of 128, as the thread on Marlin."""
        return (K, N, group) == (8192, 8192, 128)
