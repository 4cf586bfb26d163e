"""Variant "turns" of ``kernels.linear``: the shared reduction of "share", with tokens and weights requested in turn.

"share" requests all its weights before it requests x. So x arrives behind them, and the products start late. Here
only the first steps of the weights are requested before the preceding kernel has ended; then x and the other weights
follow step by step. On an H200 (K 4096, N 2048, M 32), a launch that requests one of four steps early takes 6.5 µs in a
chain, 8.2 behind an ordinary kernel; one that requests all four early takes 6.9 and 8.9.

All steps of a program stay in shared memory, so no slot is refilled. Each program adds up a share of the tokens, and
waits for programs with higher ids: all of them must be resident together.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.partial_sums import empty_tiles, mailbox, post_tile, read_tiles
from kernels.common.streaming import fetch, tiles_of
from kernels.common.tables import SearchSpace
from kernels.linear.arguments import divide
from kernels.linear.table import TABLE, search_space


class Turns(NamedTuple):
    """Tile of ``m`` tokens by 64 weight rows; steps of ``k``; K in ``parts``; ``early`` steps requested first."""

    m: int
    k: int
    parts: int
    early: int


#: Tile of "turns".
TURNS = TABLE.maybe("turns", Turns, "M K N", upto="M")

#: Rows of the weight for each program: the M side of Hopper's products.
ROWS = 64
#: Maximum rows of x, and bytes of shared memory for the tiles of a program.
MOST_ROWS = 32
MOST_BYTES = 224 << 10


def turns_at(M: int, K: int, N: int) -> SearchSpace:
    """Return the configurations that ``lockstep tune`` tries: steps of 128 or 256, K in 2 or 4 parts, 1 or 2 early."""
    m = max(8, triton.next_power_of_2(M))
    turns = [Turns(m, k, parts, early) for parts in (2, 4) for k in (128, 256) for early in (1, 2)]
    divided = [turn for turn in turns if triton.cdiv(K, turn.k) % turn.parts == 0]
    fits = [turn for turn in divided if (ROWS + m) * (triton.cdiv(K, turn.k) // turn.parts) * turn.k * 2 <= MOST_BYTES]
    return search_space("turns", fits if m <= MOST_ROWS else [], M, K, N)


def launch(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, config: Turns) -> None:
    """Write ``out = x @ weight.T + bias``. The caller has checked every argument.

    Raises:
        NotImplementedError: under the conditions that ``divide`` states, or a part does not fit into shared memory.
    """
    (M, K), N = x.shape, weight.shape[0]
    tiles, own_steps = divide("turns", x, N, config.m, ROWS, config.k, config.parts)
    if (ROWS + config.m) * own_steps * config.k * 2 > MOST_BYTES:
        raise NotImplementedError(f"turns cannot hold a part of K={K} in shared memory, with {config.parts} parts")
    _turns_kernel[(tiles, config.parts)](
        tiles_of(weight, ROWS, config.k), tiles_of(x, config.m, config.k), bias, out, mailbox(x.device), M, N,
        HAS_BIAS=bias is not None, PARTS=config.parts, STEPS=own_steps, EARLY=min(config.early, own_steps),
        num_warps=4, launch_pdl=True,
    )  # fmt: skip


@gluon.jit
def _turns_kernel(
    weight, x, bias, out, mail, M, N, HAS_BIAS: gl.constexpr, PARTS: gl.constexpr, STEPS: gl.constexpr,
    EARLY: gl.constexpr,
):  # fmt: skip
    BLOCK_N: gl.constexpr = weight.block_type.shape[0]
    BLOCK_K: gl.constexpr = weight.block_type.shape[1]
    BLOCK_M: gl.constexpr = x.block_type.shape[0]
    SHARE: gl.constexpr = BLOCK_M // PARTS
    SIZE: gl.constexpr = BLOCK_N * SHARE
    gdc_launch_dependents()
    part = gl.program_id(1)
    row = gl.program_id(0) * BLOCK_N
    first = part * STEPS * BLOCK_K
    w_tiles = gl.allocate_shared_memory(weight.dtype, [STEPS, BLOCK_N, BLOCK_K], weight.layout)
    x_tiles = gl.allocate_shared_memory(x.dtype, [STEPS, BLOCK_M, BLOCK_K], x.layout)
    w_full = gl.allocate_shared_memory(gl.int64, [STEPS, 1], mbarrier.MBarrierLayout())
    x_full = gl.allocate_shared_memory(gl.int64, [STEPS, 1], mbarrier.MBarrierLayout())
    for step in gl.static_range(STEPS):
        mbarrier.init(w_full.index(step), count=1)
        mbarrier.init(x_full.index(step), count=1)
    fence_async_shared()
    for step in gl.static_range(EARLY):
        fetch(weight, row, first + step * BLOCK_K, w_tiles, w_full, step, True)
    gdc_wait()
    for step in gl.static_range(STEPS):
        fetch(x, 0, first + step * BLOCK_K, x_tiles, x_full, step, True)
        if step + EARLY < STEPS:
            fetch(weight, row, first + (step + EARLY) * BLOCK_K, w_tiles, w_full, step + EARLY, True)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, BLOCK_M, 16]
    )
    total = gl.zeros((BLOCK_N, BLOCK_M), gl.float32, layout)
    for step in gl.static_range(STEPS):
        mbarrier.wait(w_full.index(step), 0)
        mbarrier.wait(x_full.index(step), 0)
        product = warpgroup_mma(w_tiles.index(step), x_tiles.index(step).permute((1, 0)), total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=1, deps=[product])
    total = warpgroup_mma_wait(num_outstanding=0, deps=[total])
    # Post each share of tokens to the program that adds it up.
    mail += gl.program_id(0) * (PARTS * PARTS * SIZE)
    rows = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, layout))[:, None]
    tokens = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, layout))[None, :]
    post_tile(mail + tokens // SHARE * (PARTS * SIZE) + part * SIZE + rows * SHARE + tokens % SHARE, total)
    # Up to four tokens of a row in one load.
    ACROSS: gl.constexpr = SHARE // 4 if SHARE > 4 else 1
    own: gl.constexpr = gl.BlockedLayout(
        [1, SHARE if SHARE < 4 else 4], [32 // ACROSS, ACROSS], [gl.num_warps(), 1], [1, 0]
    )
    rows = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, own))
    tokens = gl.arange(0, SHARE, layout=gl.SliceLayout(0, own))
    # Added in the order of the parts, so that the same input gives the same bits.
    partials = mail + part * (PARTS * SIZE) + rows[:, None] * SHARE + tokens[None, :]
    result = read_tiles(partials, PARTS, SIZE)
    empty_tiles(partials, PARTS, SIZE)
    columns = row + rows
    lines = part * SHARE + tokens
    if HAS_BIAS:
        result += gl.load(bias + columns, mask=columns < N, other=0.0).to(gl.float32)[:, None]
    inside = (columns < N)[:, None] & (lines < M)[None, :]
    gl.store(out + lines.to(gl.int64)[None, :] * N + columns[:, None], result.to(out.dtype.element_ty), mask=inside)
