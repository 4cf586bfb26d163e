"""Kimi Delta Attention projections at the shapes of SGLang PR 17801, in bf16.

The PR has hidden size 2304 and 8 heads of 128 per rank. With 4 heads per rank, its shape on twice the GPUs, the slice
of f_a is not aligned to 16 bytes. Decoding has M = 1 … 512 tokens, prefill thousands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep import Cost, Suite, grid

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.suite.inputs import Draw

RANK = 128


class Kda(Suite):
    """Eight products: q, k, v, beta, f_a and g_a from x, then f from f_a and g from g_a."""

    module = "kernels.kda"
    baseline = "eight"
    activations = ("x",)
    # The variant that the PR changed to, and the variant that is compared with it.
    tracked = ("merged", "best")
    cases = (
        *grid(M=[1, 2, 4, 8, 16, 32, 64, 128, 512, 4096, 8192, 16384], K=2304, heads=8),
        *grid(M=[1, 16, 4096], K=2304, heads=4),
    )
    quick = grid(M=[1, 16], K=2304, heads=8)
    version = "1"
    continues = "6.1", "37d33f5b68183794"  # the digest under which version 1 was recorded first

    def draw(self, new: Draw, M: int, K: int, heads: int) -> dict[str, Tensor]:
        """Draw x [M, K] and eight weights [out, in], scaled so that every output is of order one."""
        width = heads * RANK
        rows = {"w_q": width, "w_k": width, "w_v": width, "w_beta": heads, "w_fa": RANK, "w_ga": RANK}
        return {
            "x": new.normal(M, K),
            **{name: new.normal(count, K, scale=K**-0.5) for name, count in rows.items()},
            "w_fb": new.normal(width, RANK, scale=RANK**-0.5),
            "w_gb": new.normal(width, RANK, scale=RANK**-0.5),
        }

    def buffers(self, new: Draw, M: int, heads: int) -> Tensor:
        """Return one flat buffer for q, k, v, beta, f_a, g_a and f, g, in the layout of each variant."""
        return new.empty(M * (5 * heads * RANK + heads + 2 * RANK))

    def reference(
        self,
        x: Tensor,
        w_q: Tensor,
        w_k: Tensor,
        w_v: Tensor,
        w_beta: Tensor,
        w_fa: Tensor,
        w_ga: Tensor,
        w_fb: Tensor,
        w_gb: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return (q, k, v, beta, f, g) in float32, without rounding f_a and g_a in between."""
        x = x.float()
        q, k, v, beta, f_a, g_a = (x @ weight.float().T for weight in (w_q, w_k, w_v, w_beta, w_fa, w_ga))
        return q, k, v, beta, f_a @ w_fb.float().T, g_a @ w_gb.float().T

    def cost(self, M: int, K: int, heads: int) -> Cost:
        """Count the eight products, and the bytes of x, weights and six results; f_a and g_a can stay on the chip."""
        width = heads * RANK
        weights = K * (3 * width + heads + 2 * RANK) + 2 * width * RANK
        return Cost(2.0 * M * weights, 2.0 * (M * K + weights + M * (5 * width + heads)))

    def full_history(self, M: int, heads: int) -> bool:
        """Return whether a history measures every variant: at up to 512 tokens and the eight heads of one GPU."""
        return M <= 512 and heads == 8

    warm_history = full_history
