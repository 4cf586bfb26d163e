"""Variant "spread" of ``kernels.linear``: the shared reduction of "share" after the plain loop of "split_k".

"share" requests all its weights before it requests x, so behind a kernel that lets nothing start early its products
begin late. Triton's loop requests both in turn, and needs no rows at multiples of 16 bytes.

As in ``kernels.linear.share_kernel`` each program posts its sums in shares of tokens, adds up its own share in the
order of the parts, and so waits for programs with higher ids: all of them must be resident together.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.partial_sums import EMPTY, NAN, capacity, mailbox
from kernels.common.tables import SearchSpace
from kernels.linear.arguments import divide
from kernels.linear.product_kernel import prefetch_steps, store
from kernels.linear.table import TABLE, search_space


class Spread(NamedTuple):
    """Tile of ``m`` tokens by ``n`` weight rows; steps of ``k``; K in ``parts``, which divide the tokens.

    The weights of the first ``ahead`` steps are prefetched into L2 before the preceding kernel has ended.
    """

    m: int
    n: int
    k: int
    parts: int
    num_warps: int
    num_stages: int
    ahead: int


#: Tile of "spread".
SPREAD = TABLE.maybe("spread", Spread, "M K N", upto="M")

#: Maximum rows for which ``lockstep tune`` tries "spread": with more, "split_k" was faster.
MOST_ROWS = 32


def spreads_at(M: int, K: int, N: int) -> SearchSpace:
    """Return the configurations that ``lockstep tune`` tries: K in 2 to 8 parts, 4 or 8 warps, 5 or 6 stages."""
    m = max(16, triton.next_power_of_2(M))
    splits = (2, 4, 8) if N <= 1024 else (2, 4)
    spreads = [Spread(m, 64, 128, parts, warps, stages, 2) for parts in splits for warps in (4, 8) for stages in (5, 6)]
    divided = [spread for spread in spreads if triton.cdiv(K, spread.k) % spread.parts == 0]
    return search_space("spread", divided if m <= MOST_ROWS else [], M, K, N)


def launch(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, config: Spread) -> None:
    """Write ``out = x @ weight.T + bias``. The caller has checked every argument.

    Raises:
        NotImplementedError: under the conditions that ``divide`` states, or the sums do not fit the mailbox.
    """
    (M, K), N = x.shape, weight.shape[0]
    tiles, own_steps = divide("spread", x, N, config.m, config.n, config.k, config.parts)
    if (sums := tiles * config.parts * config.m * config.n) > (available := capacity(x.device)):
        raise NotImplementedError(f"spread needs {sums} mailbox elements for N={N}, and the mailbox has {available}")
    _spread_kernel[(tiles, config.parts)](
        x, weight, bias, out, mailbox(x.device), M, N, K,
        HAS_BIAS=bias is not None, EVEN_K=K % config.k == 0, PARTS=config.parts, STEPS=own_steps,
        BLOCK_M=config.m, BLOCK_N=config.n, BLOCK_K=config.k, FETCHED=min(config.ahead, own_steps),
        num_warps=config.num_warps, num_stages=config.num_stages, launch_pdl=True,
    )  # fmt: skip


@triton.jit
def _spread_kernel(
    x, weight, bias, out, mail, M, N, K, HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr, PARTS: tl.constexpr,
    STEPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FETCHED: tl.constexpr,
):  # fmt: skip
    gdc_launch_dependents()
    tile = tl.program_id(0)
    part = tl.program_id(1)
    m = tl.arange(0, BLOCK_M)
    column = tl.arange(0, BLOCK_N)
    n = tile * BLOCK_N + column
    k = part * (STEPS * BLOCK_K) + tl.arange(0, BLOCK_K)
    # Rows of the weight beyond the edge read row 0 instead of being masked, and are never stored.
    w_row = weight + tl.where(n < N, n, 0).to(tl.int64) * K
    x_row = x + m.to(tl.int64) * K
    prefetch_steps(w_row, part * (STEPS * BLOCK_K), K, FETCHED, BLOCK_K)
    gdc_wait()
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for _ in range(STEPS):
        if EVEN_K:
            w_tile = tl.load(w_row[:, None] + k[None, :])
            x_tile = tl.load(x_row[:, None] + k[None, :], mask=m[:, None] < M, other=0.0)
        else:
            w_tile = tl.load(w_row[:, None] + k[None, :], mask=k[None, :] < K, other=0.0)
            x_tile = tl.load(x_row[:, None] + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        acc = tl.dot(w_tile, tl.trans(x_tile), acc)
        k += BLOCK_K
    # Post each share of tokens to the program that adds it up.
    SHARE: tl.constexpr = BLOCK_M // PARTS
    SIZE: tl.constexpr = SHARE * BLOCK_N
    mail += tile * (PARTS * PARTS * SIZE)
    bits = tl.trans(acc).to(tl.int32, bitcast=True)
    to = (m // SHARE) * (PARTS * SIZE) + part * SIZE + (m % SHARE) * BLOCK_N
    tl.store(mail + to[:, None] + column[None, :], tl.where(bits == EMPTY, NAN, bits))
    own = tl.arange(0, SHARE)
    at = mail + part * (PARTS * SIZE) + own[:, None] * BLOCK_N + column[None, :]
    total = tl.zeros((SHARE, BLOCK_N), dtype=tl.float32)
    waiting = 1
    while waiting > 0:
        empty = tl.zeros((SHARE, BLOCK_N), dtype=tl.int32)
        # Added in the order of the parts, so that the same input gives the same bits.
        total = tl.zeros((SHARE, BLOCK_N), dtype=tl.float32)
        for other in tl.static_range(PARTS):
            # The offset is zero. Triton's compiler (3.6) fails on a loop that does not use what its condition tests.
            found = tl.load(at + (waiting >> 1) + other * SIZE, volatile=True)
            empty |= (found == EMPTY).to(tl.int32)
            total += found.to(tl.float32, bitcast=True)
        waiting = tl.max(tl.max(empty, 1), 0)
    for other in tl.static_range(PARTS):
        tl.store(at + other * SIZE, tl.full((SHARE, BLOCK_N), EMPTY, tl.int32))
    store(total, bias, out, part * SHARE + own, n, M, N, HAS_BIAS)
