"""Variant "share" of ``kernels.linear``: split K, with the reduction shared by all programs of a tile.

In ``kernels.linear.stream_kernel`` the program of the last part of K adds up a tile; the other programs have ended by
then. Here each program posts its partial sums in shares of some tokens, one share for each part. Each program then adds
up its own share, in the order of the parts. The same number of elements is read in total, but by all programs at once.

So programs wait for programs with higher ids. All programs must be resident together; ``launch`` refuses other sizes.
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
from kernels.common.streaming import fetch, prefetch_rows, prefetch_tokens, tiles_of
from kernels.common.tables import SearchSpace
from kernels.common.warp_group_tiles import halves
from kernels.linear.arguments import divide
from kernels.linear.table import TABLE, search_space


class Share(NamedTuple):
    """Tile of ``m`` tokens by ``n`` weight rows; steps of ``k``; K in ``parts`` (2 or 4); stages of two rings.

    The rings hold tiles of the weight and of x. A program's share is ``m / parts`` tokens, at least 8:
    the narrowest product of the tensor cores.
    """

    m: int
    n: int
    k: int
    parts: int
    w_stages: int
    x_stages: int
    num_warps: int


#: Tile of "share".
SHARE = TABLE.maybe("share", Share, "M K N", upto="M")

#: Maximum rows. With more rows, the rings do not hold all steps of a part.
MOST_ROWS = 64


def shares_at(M: int, K: int, N: int) -> SearchSpace:
    """Return the configurations that ``lockstep tune`` tries: K in 2 or 4 parts, rings of several lengths that fit."""
    m = max(16, triton.next_power_of_2(M))
    long = ((128, 8, 8), (128, 5, 4), (256, 4, 4), (256, 3, 3))
    rings = long if m <= 32 else ((128, 7, 6), (128, 8, 5), (128, 4, 3))
    shares = [Share(m, 64, k, parts, w, x, 4) for parts in (2, 4) if m >= 8 * parts for k, w, x in rings]
    divided = [share for share in shares if triton.cdiv(K, share.k) % share.parts == 0]
    return search_space("share", divided if m <= MOST_ROWS else [], M, K, N)


def launch(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, config: Share) -> None:
    """Write ``out = x @ weight.T + bias``. The caller has checked every argument.

    Raises:
        NotImplementedError: under the conditions that ``divide`` states.
    """
    (M, K), N = x.shape, weight.shape[0]
    tiles, steps = divide("share", x, N, config.m, config.n, config.k, config.parts)
    _share_kernel[(tiles, config.parts)](
        tiles_of(weight, config.n, config.k), tiles_of(x, config.m, config.k), weight, x, bias, out,
        mailbox(x.device), M, N, K, HAS_BIAS=bias is not None, PARTS=config.parts, STEPS=steps,
        W_STAGES=config.w_stages, X_STAGES=config.x_stages, num_warps=config.num_warps, launch_pdl=True,
    )  # fmt: skip


@gluon.jit
def _share_kernel(
    weight, x, w_plain, x_plain, bias, out, mail, M, N, K, HAS_BIAS: gl.constexpr, PARTS: gl.constexpr,
    STEPS: gl.constexpr, W_STAGES: gl.constexpr, X_STAGES: gl.constexpr,
):  # fmt: skip
    BLOCK_N: gl.constexpr = weight.block_type.shape[0]
    SHARE: gl.constexpr = x.block_type.shape[0] // PARTS
    SIZE: gl.constexpr = BLOCK_N * SHARE
    gdc_launch_dependents()
    tile = gl.program_id(0)
    part = gl.program_id(1)
    row = tile * BLOCK_N
    total = _product(weight, x, w_plain, x_plain, tile, part, M, N, K, STEPS, W_STAGES, X_STAGES)
    # The layout in which the tensor cores hold a share: little data moves between threads.
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, SHARE, 16]
    )
    rows = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, layout))
    tokens = gl.arange(0, SHARE, layout=gl.SliceLayout(0, layout))
    mail += tile * (PARTS * PARTS * SIZE) + rows[:, None] * SHARE + tokens[None, :]
    _post_shares(total, mail + part * SIZE, PARTS, SIZE, layout)
    # Added in the order of the parts, so that the same input gives the same bits.
    partials = mail + part * (PARTS * SIZE)
    result = read_tiles(partials, PARTS, SIZE)
    empty_tiles(partials, PARTS, SIZE)
    columns = row + rows
    lines = part * SHARE + tokens
    if HAS_BIAS:
        result += gl.load(bias + columns, mask=columns < N, other=0.0).to(gl.float32)[:, None]
    inside = (columns < N)[:, None] & (lines < M)[None, :]
    gl.store(out + lines.to(gl.int64)[None, :] * N + columns[:, None], result.to(out.dtype.element_ty), mask=inside)


@gluon.jit
def _product(
    weight, x, w_plain, x_plain, tile, part, M, N, K, STEPS: gl.constexpr, W_STAGES: gl.constexpr,
    X_STAGES: gl.constexpr,
):  # fmt: skip
    """Compute as ``kernels.common.streaming.stream``, unrolled. Prefetch into L2 the tiles beyond the rings."""
    BLOCK_N: gl.constexpr = weight.block_type.shape[0]
    BLOCK_K: gl.constexpr = weight.block_type.shape[1]
    BLOCK_M: gl.constexpr = x.block_type.shape[0]
    first = part * STEPS * BLOCK_K
    row = tile * BLOCK_N
    w_ring = gl.allocate_shared_memory(weight.dtype, [W_STAGES, BLOCK_N, BLOCK_K], weight.layout)
    x_ring = gl.allocate_shared_memory(x.dtype, [X_STAGES, BLOCK_M, BLOCK_K], x.layout)
    w_full = gl.allocate_shared_memory(gl.int64, [W_STAGES, 1], mbarrier.MBarrierLayout())
    x_full = gl.allocate_shared_memory(gl.int64, [X_STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(W_STAGES):
        mbarrier.init(w_full.index(slot), count=1)
    for slot in gl.static_range(X_STAGES):
        mbarrier.init(x_full.index(slot), count=1)
    fence_async_shared()
    for slot in gl.static_range(min(W_STAGES, STEPS)):
        fetch(weight, row, first + slot * BLOCK_K, w_ring, w_full, slot, True)
    prefetch_tokens(x_plain, tile, gl.num_programs(0), first, M, K, STEPS * BLOCK_K)
    if STEPS > W_STAGES:
        prefetch_rows(w_plain, row, first + W_STAGES * BLOCK_K, N, K, BLOCK_N, (STEPS - W_STAGES) * BLOCK_K)
    gdc_wait()
    for slot in gl.static_range(min(X_STAGES, STEPS)):
        fetch(x, 0, first + slot * BLOCK_K, x_ring, x_full, slot, True)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, BLOCK_M, 16]
    )
    total = gl.zeros((BLOCK_N, BLOCK_M), gl.float32, layout)
    for step in gl.static_range(STEPS):
        mbarrier.wait(w_full.index(step % W_STAGES), step // W_STAGES & 1)
        mbarrier.wait(x_full.index(step % X_STAGES), step // X_STAGES & 1)
        product = warpgroup_mma(
            w_ring.index(step % W_STAGES), x_ring.index(step % X_STAGES).permute((1, 0)), total, is_async=True
        )
        # One product stays in flight, so the free slots are those of the product before it.
        total = warpgroup_mma_wait(num_outstanding=1, deps=[product])
        if step > 0 and step + W_STAGES - 1 < STEPS:
            _refill(weight, row, first, w_ring, w_full, step + W_STAGES - 1)
        if step > 0 and step + X_STAGES - 1 < STEPS:
            _refill(x, 0, first, x_ring, x_full, step + X_STAGES - 1)
    return warpgroup_mma_wait(num_outstanding=0, deps=[total])


@gluon.jit
def _refill(tiles, row, first, ring, full, step: gl.constexpr):
    fetch(tiles, row, first + step * ring.shape[2], ring, full, step % ring.shape[0], True)


@gluon.jit
def _post_shares(total, mail, PARTS: gl.constexpr, SIZE: gl.constexpr, layout: gl.constexpr):
    """Post a tile's columns in ``PARTS`` shares, each in the mailbox of the program that adds it up."""
    gl.static_assert(PARTS == 2 or PARTS == 4, "a tile is halved once or twice")
    west, east = halves(total)
    if PARTS == 2:
        post_tile(mail, gl.convert_layout(west, layout))
        post_tile(mail + PARTS * SIZE, gl.convert_layout(east, layout))
    else:
        first, second = halves(west)
        third, fourth = halves(east)
        post_tile(mail, gl.convert_layout(first, layout))
        post_tile(mail + PARTS * SIZE, gl.convert_layout(second, layout))
        post_tile(mail + 2 * PARTS * SIZE, gl.convert_layout(third, layout))
        post_tile(mail + 3 * PARTS * SIZE, gl.convert_layout(fourth, layout))
