"""Variant "tiles" of ``kernels.kda``: tensor cores, K split over programs, one launch (``kernels.kda.ready_flags``)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.kda.ready_flags import COUNTERS, await_flag, counters_of, leave, overlap, raise_flag
from kernels.kda.table import TABLE

#: Maximum number of tokens.
TILES_LIMIT = 128


class Tiles(NamedTuple):
    """Tile config of ``decode_tiles``: BLOCK_N weight rows by BLOCK_M tokens, K split over programs."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    SPLIT_LOW: int
    SPLIT_WIDE: int
    SHORT: int
    num_warps: int
    num_stages: int


#: Two programs share a multiprocessor, so each may use 113 KB of shared memory.
TILES = TABLE.maybe("tiles", Tiles, "M", upto="M")


@triton.jit
def _decode_tiles(
    x, w_in, w_fg, wide, beta, fg, partials, counters, M, H,
    K: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT_LOW: tl.constexpr, SPLIT_WIDE: tl.constexpr, SHORT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    long_programs = 2 * R // BLOCK_N * SPLIT_LOW + (3 * D // BLOCK_N + tl.cdiv(H, BLOCK_N)) * SPLIT_WIDE
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if pid < long_programs:
        _long_tile(
            pid, x, w_in, wide, beta, partials, counters, M, H,
            K, D, R, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_LOW, SPLIT_WIDE,
        )  # fmt: skip
    else:
        _short_tile(pid - long_programs, w_fg, wide, fg, counters, M, D, R, BLOCK_M, BLOCK_N, SHORT)


@triton.jit
def _long_tile(
    pid, x, w_in, wide, beta, partials, counters, M, H,
    K: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT_LOW: tl.constexpr, SPLIT_WIDE: tl.constexpr,
):  # fmt: skip
    """Sum one part of K for one tile: the first programs for f_a and g_a, the next for q, k, v, the last for beta."""
    WIDTH: tl.constexpr = 3 * D + 2 * R
    LOW_TILES: tl.constexpr = 2 * R // BLOCK_N
    LOW: tl.constexpr = LOW_TILES * SPLIT_LOW
    is_low = pid < LOW
    parts = tl.where(is_low, SPLIT_LOW, SPLIT_WIDE)
    at_part = tl.where(is_low, pid, pid - LOW)
    part = at_part % parts
    tile = tl.where(is_low, 0, LOW_TILES) + at_part // parts
    position = tl.where(is_low, tile + 3 * D // BLOCK_N, tl.where(tile * BLOCK_N < WIDTH, tile - LOW_TILES, tile))
    first_row = position * BLOCK_N
    rows = tl.arange(0, BLOCK_N)
    tokens = tl.arange(0, BLOCK_M)
    depth = tl.arange(0, BLOCK_K)
    row_ok = first_row + rows < WIDTH + H
    token_ok = tokens < M
    length = tl.cdiv(tl.cdiv(K, BLOCK_K), parts) * BLOCK_K
    # The weight is the left operand: its rows fill the tensor core's 64-wide M side, tokens the narrow N side.
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    w_at = w_in + first_row * K + rows[:, None] * K + depth[None, :]
    x_at = x + tokens[None, :] * K + depth[:, None]
    for start in range(part * length, tl.minimum((part + 1) * length, K), BLOCK_K):
        w_tile = tl.load(w_at + start, row_ok[:, None] & (depth < K - start)[None, :], 0.0)
        x_tile = tl.load(x_at + start, token_ok[None, :] & (depth < K - start)[:, None], 0.0)
        total = tl.dot(w_tile, x_tile, total)
    at = partials + rows[:, None] * BLOCK_M + tokens[None, :]
    tl.store(at + pid * (BLOCK_N * BLOCK_M), total)
    tl.debug_barrier()
    ticket = counters + 3 + tile
    if tl.atomic_add(ticket, 1, sem="acq_rel", scope="gpu") == parts - 1:
        tl.store(ticket, 0)
        # Added in the order of the parts, whichever program is last, so that the same input gives the same bits.
        total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for other in range(pid - part, pid - part + parts):
            total += tl.load(at + other * (BLOCK_N * BLOCK_M), cache_modifier=".cg")
        result = tl.trans(total).to(wide.dtype.element_ty)
        columns = first_row + rows
        if first_row >= WIDTH:
            beta_at = beta + tokens[:, None] * H + (columns - WIDTH)[None, :]
            tl.store(beta_at, result, token_ok[:, None] & row_ok[None, :])
        else:
            tl.store(wide + tokens[:, None] * WIDTH + columns[None, :], result, token_ok[:, None])
        if is_low:
            raise_flag(counters + tile // (LOW_TILES // 2))


@triton.jit
def _short_tile(
    pid, w_fg, wide, fg, counters, M,
    D: tl.constexpr, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """Compute a tile of f from f_a or, in the second half of the programs, of g from g_a."""
    WIDTH: tl.constexpr = 3 * D + 2 * R
    half = pid * SHORT // D
    rows = pid * SHORT + tl.arange(0, SHORT)
    tokens = tl.arange(0, BLOCK_M)
    depth = tl.arange(0, R)
    token_ok = tokens < M
    weight = tl.load(w_fg + rows[:, None] * R + depth[None, :])
    await_flag(counters + half, R // BLOCK_N)
    low_at = wide + tokens[None, :] * WIDTH + 3 * D + half * R + depth[:, None]
    low = tl.load(low_at, token_ok[None, :], 0.0, cache_modifier=".cg")
    result = tl.trans(tl.dot(weight, low)).to(fg.dtype.element_ty)
    fg_at = fg + half * (M - 1) * D + tokens[:, None] * D + rows[None, :]
    tl.store(fg_at, result, token_ok[:, None])
    leave(counters, 2 * D // SHORT)


def decode_tiles(x: Tensor, w_in: Tensor, w_fg: Tensor, wide: Tensor, beta: Tensor, fg: Tensor) -> None:
    """Compute all eight products on tensor cores, for M ≤ 128.

    K is split over programs. The program that finishes a tile last adds up the tile's partial sums, so that no second
    launch is needed.

    Args:
        x: [M, K], contiguous; so is every tensor.
        w_in: [3·D + 2·R + H, K], rows of q, k, v, f_a, g_a, beta.
        w_fg: [2, D, R].
        wide: [M, 3·D + 2·R], written.
        beta: [M, H], written.
        fg: [2, M, D], written.

    Raises:
        NotImplementedError: more than 128 tokens, or sizes that do not divide into tiles.
    """
    (M, K), (_, D, R), H = x.shape, w_fg.shape, beta.shape[1]
    config = TILES(x.device, M)
    if config is None:
        raise NotImplementedError(f"tiles serves up to {TILES_LIMIT} tokens, got {M}")
    if R % config.BLOCK_N or 3 * D % config.BLOCK_N or D % config.SHORT or R & (R - 1):
        raise NotImplementedError(f"tiles needs a rank that is a power of two and a multiple of 128, got {R} (D = {D})")
    low = 2 * R // config.BLOCK_N
    wide_tiles = 3 * D // config.BLOCK_N + triton.cdiv(H, config.BLOCK_N)
    if 3 + low + wide_tiles > COUNTERS:
        raise NotImplementedError(
            f"the variant tiles has counters for {COUNTERS - 3} tiles, these shapes need {low + wide_tiles}"
        )
    long_programs = low * config.SPLIT_LOW + wide_tiles * config.SPLIT_WIDE
    partials = torch.empty(long_programs * config.BLOCK_N * config.BLOCK_M, dtype=torch.float32, device=x.device)
    _decode_tiles[(long_programs + 2 * D // config.SHORT,)](
        x, w_in, w_fg, wide, beta, fg, partials, counters_of(x.device), M, H,
        K=K, D=D, R=R, BLOCK_M=config.BLOCK_M, BLOCK_N=config.BLOCK_N, BLOCK_K=config.BLOCK_K,
        SPLIT_LOW=config.SPLIT_LOW, SPLIT_WIDE=config.SPLIT_WIDE, SHORT=config.SHORT,
        num_warps=config.num_warps, num_stages=config.num_stages, **overlap(x),
    )  # fmt: skip
