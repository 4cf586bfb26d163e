"""The eight projections of ``kernels.kda`` in one launch, for few tokens.

Reading the weights is nearly all of the work, so what is left to win is latency: one launch instead of two, and
no wait for f_a and g_a before f and g. The programs of one launch therefore have roles, by rising program id:

1. rows of f_a and g_a, cut finest so that they are done first; each raises a flag when its part is stored;
2. rows of q, k, v and beta, the bulk of the bytes;
3. rows of f and g: they load their weights, then spin until the flag of their half is complete.

Programs start in the order of their ids and a role waits only for lower ids, so the spin ends whatever else
runs on the GPU; Triton's interpreter, which runs them one after another, never spins.

Flags and tickets count in a small buffer kept for each device and are back at zero when the kernel ends. Launches
of one stream follow each other; two streams must not decode on one device at the same time.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.devices import capability
from kernels.kda_table import TABLE
from kernels.scratch import kept

#: Most tokens that each of the two kernels serves.
ROWS_LIMIT = 4
TILES_LIMIT = 128

#: Counters kept for each device: two flags, one exit count, then one ticket a tile.
COUNTERS = 1024


class Rows(NamedTuple):
    """How ``decode_rows`` is cut: weight rows a program, of the long products and of f and g."""

    LONG: int
    SHORT: int
    num_warps: int


class Tiles(NamedTuple):
    """How ``decode_tiles`` is cut: a tile of BLOCK_N weight rows by BLOCK_M tokens, its K split over programs."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    SPLIT_LOW: int
    SPLIT_WIDE: int
    SHORT: int
    num_warps: int
    num_stages: int


ROWS = TABLE.choice("rows", Rows, "M", upto="M")

#: Two programs share a multiprocessor, so a program of "tiles" may use 113 KB of shared memory.
TILES = TABLE.maybe("tiles", Tiles, "M", upto="M")


@kept
def counters_of(device: torch.device) -> torch.Tensor:
    """The device's counters, zero before and after every launch."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)


@triton.jit
def _raise_flag(flag):
    # The release orders this thread's stores alone; the barrier puts the other threads' before it.
    tl.debug_barrier()
    tl.atomic_add(flag, 1, sem="release", scope="gpu")


@triton.jit
def _await_flag(flag, wanted):
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="gpu")
    while seen < wanted:
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="gpu")


@triton.jit
def _leave(counters, programs):
    """The last program of role 3 puts the flags back: every other one has passed them."""
    tl.debug_barrier()
    if tl.atomic_add(counters + 2, 1, sem="acq_rel", scope="gpu") == programs - 1:
        tl.store(counters, 0)
        tl.store(counters + 1, 0)
        tl.store(counters + 2, 0)


@triton.jit
def _decode_rows(
    x, w_in, w_fg, wide, beta, fg, counters, H,
    M: tl.constexpr, K: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    HEAD: tl.constexpr, TAIL: tl.constexpr, LONG: tl.constexpr, SHORT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    long_programs = (3 * D + 2 * R) // LONG + tl.cdiv(H, LONG)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    if pid < long_programs:
        _long_rows(pid, x, w_in, wide, beta, counters, H, M, K, D, R, HEAD, TAIL, LONG, PDL)
    else:
        _short_rows(pid - long_programs, w_fg, wide, fg, counters, M, D, R, LONG, SHORT, PDL)


@triton.jit
def _and(tiles, tile):
    """A longer tuple. Triton knows no unpacking, and a type checker no tuple that grows."""
    return tiles + (tile,)  # noqa: RUF005


@triton.jit
def _long_rows(
    pid, x, w_in, wide, beta, counters, H,
    M: tl.constexpr, K: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    HEAD: tl.constexpr, TAIL: tl.constexpr, LONG: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """f_a and g_a first, then q, k, v, then beta, which lies behind f_a and g_a in the weight."""
    WIDTH: tl.constexpr = 3 * D + 2 * R
    LOW: tl.constexpr = 2 * R // LONG
    position = tl.where(pid < LOW, pid + 3 * D // LONG, tl.where(pid * LONG < WIDTH, pid - LOW, pid))
    rows = position * LONG + tl.arange(0, LONG)
    inside = rows < WIDTH + H
    head = tl.arange(0, HEAD)
    tail = HEAD + tl.arange(0, TAIL)
    tail_ok = tail < K
    # The weights do not come from the kernel before this one: load them while it finishes.
    w_head = tl.load(w_in + rows[:, None] * K + head[None, :], inside[:, None], 0.0)
    w_tail = tl.load(w_in + rows[:, None] * K + tail[None, :], inside[:, None] & tail_ok[None, :], 0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
    # All tokens before any result is stored: a load may not pass a store that might write what it reads.
    heads = ()
    tails = ()
    for m in tl.static_range(M):
        heads = _and(heads, tl.load(x + m * K + head))
        tails = _and(tails, tl.load(x + m * K + tail, tail_ok, 0.0))
    for m in tl.static_range(M):
        total = tl.sum(w_head.to(tl.float32) * heads[m].to(tl.float32)[None, :], 1)
        total += tl.sum(w_tail.to(tl.float32) * tails[m].to(tl.float32)[None, :], 1)
        if position * LONG >= WIDTH:
            tl.store(beta + m * H + rows - WIDTH, total.to(beta.dtype.element_ty), inside)
        else:
            tl.store(wide + m * WIDTH + rows, total.to(wide.dtype.element_ty))
    if pid < LOW:
        _raise_flag(counters + pid // (LOW // 2))


@triton.jit
def _short_rows(
    pid, w_fg, wide, fg, counters,
    M: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    LONG: tl.constexpr, SHORT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """f, then g."""
    WIDTH: tl.constexpr = 3 * D + 2 * R
    rows = pid * SHORT + tl.arange(0, SHORT)
    half = pid * SHORT // D
    depth = tl.arange(0, R)
    weight = tl.load(w_fg + rows[:, None] * R + depth[None, :]).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
    _await_flag(counters + half, R // LONG)
    lows = ()
    for m in tl.static_range(M):
        # .cg: written by another multiprocessor a moment ago, so never from this one's L1.
        lows = _and(lows, tl.load(wide + m * WIDTH + 3 * D + half * R + depth, cache_modifier=".cg"))
    for m in tl.static_range(M):
        total = tl.sum(weight * lows[m].to(tl.float32)[None, :], 1)
        tl.store(fg + (half * M + m) * D + rows - half * D, total.to(fg.dtype.element_ty))
    _leave(counters, 2 * D // SHORT)


def decode_rows(
    x: torch.Tensor, w_in: torch.Tensor, w_fg: torch.Tensor, wide: torch.Tensor, beta: torch.Tensor, fg: torch.Tensor
) -> None:
    """Dot products without tensor cores, whole rows of the weight a program, for M ≤ 4.

    Args:
        x: [M, K], contiguous; so is every tensor.
        w_in: [3·D + 2·R + H, K], rows of q, k, v, f_a, g_a, beta.
        w_fg: [2, D, R].
        wide: [M, 3·D + 2·R], written.
        beta: [M, H], written.
        fg: [2, M, D], written.

    Raises:
        NotImplementedError: more than 4 tokens, or sizes that do not divide into programs.
    """
    (M, K), (_, D, R), H = x.shape, w_fg.shape, beta.shape[1]
    cut = ROWS(x.device, M)
    if M > ROWS_LIMIT:
        raise NotImplementedError(f"rows serves up to {ROWS_LIMIT} tokens, got {M}")
    if R % cut.LONG or D % cut.SHORT or R & (R - 1):
        raise NotImplementedError(f"rows needs D % {cut.SHORT} == 0 and a rank that is a power of two, got {D}, {R}")
    head = 1 << (K.bit_length() - 1)
    programs = w_in.shape[0] - H
    grid = (programs // cut.LONG + triton.cdiv(H, cut.LONG) + 2 * D // cut.SHORT,)
    _decode_rows[grid](
        x, w_in, w_fg, wide, beta, fg, counters_of(x.device), H,
        M=M, K=K, D=D, R=R, HEAD=head, TAIL=max(triton.next_power_of_2(K - head), 16),
        LONG=cut.LONG, SHORT=cut.SHORT, num_warps=cut.num_warps, **_overlap(x),
    )  # fmt: skip


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
    """One part of the sum of one tile of f_a and g_a, then of q, k, v, then of beta."""
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
        # In the order of the parts, whoever came last: the same sum every time.
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
            _raise_flag(counters + tile // (LOW_TILES // 2))


@triton.jit
def _short_tile(
    pid, w_fg, wide, fg, counters, M,
    D: tl.constexpr, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """A tile of f, then of g."""
    WIDTH: tl.constexpr = 3 * D + 2 * R
    half = pid * SHORT // D
    rows = pid * SHORT + tl.arange(0, SHORT)
    tokens = tl.arange(0, BLOCK_M)
    depth = tl.arange(0, R)
    token_ok = tokens < M
    weight = tl.load(w_fg + rows[:, None] * R + depth[None, :])
    _await_flag(counters + half, R // BLOCK_N)
    low_at = wide + tokens[None, :] * WIDTH + 3 * D + half * R + depth[:, None]
    low = tl.load(low_at, token_ok[None, :], 0.0, cache_modifier=".cg")
    result = tl.trans(tl.dot(weight, low)).to(fg.dtype.element_ty)
    fg_at = fg + half * (M - 1) * D + tokens[:, None] * D + rows[None, :]
    tl.store(fg_at, result, token_ok[:, None])
    _leave(counters, 2 * D // SHORT)


def decode_tiles(
    x: torch.Tensor, w_in: torch.Tensor, w_fg: torch.Tensor, wide: torch.Tensor, beta: torch.Tensor, fg: torch.Tensor
) -> None:
    """Tensor-core tiles with K split over programs, for M ≤ 128. Arguments as in ``decode_rows``.

    The program that finishes a tile last adds up its parts, so that no second launch is needed.

    Raises:
        NotImplementedError: more than 128 tokens, or sizes that do not divide into tiles.
    """
    (M, K), (_, D, R), H = x.shape, w_fg.shape, beta.shape[1]
    cut = TILES(x.device, M)
    if cut is None:
        raise NotImplementedError(f"tiles serves up to {TILES_LIMIT} tokens, got {M}")
    if R % cut.BLOCK_N or 3 * D % cut.BLOCK_N or D % cut.SHORT or R & (R - 1):
        raise NotImplementedError(f"tiles needs a rank that is a power of two and a multiple of 128, got {R} (D = {D})")
    low = 2 * R // cut.BLOCK_N
    wide_tiles = 3 * D // cut.BLOCK_N + triton.cdiv(H, cut.BLOCK_N)
    if 3 + low + wide_tiles > COUNTERS:
        raise NotImplementedError(f"tiles counts up to {COUNTERS - 3} tiles, got {low + wide_tiles}")
    long_programs = low * cut.SPLIT_LOW + wide_tiles * cut.SPLIT_WIDE
    partials = torch.empty(long_programs * cut.BLOCK_N * cut.BLOCK_M, dtype=torch.float32, device=x.device)
    _decode_tiles[(long_programs + 2 * D // cut.SHORT,)](
        x, w_in, w_fg, wide, beta, fg, partials, counters_of(x.device), M, H,
        K=K, D=D, R=R, BLOCK_M=cut.BLOCK_M, BLOCK_N=cut.BLOCK_N, BLOCK_K=cut.BLOCK_K,
        SPLIT_LOW=cut.SPLIT_LOW, SPLIT_WIDE=cut.SPLIT_WIDE, SHORT=cut.SHORT,
        num_warps=cut.num_warps, num_stages=cut.num_stages, **_overlap(x),
    )  # fmt: skip


def _overlap(x: torch.Tensor) -> dict[str, bool]:
    """Programmatic dependent launch where there is one (Hopper on): start while the kernel before still runs."""
    overlap = capability(x.device) >= (9, 0)
    return {"PDL": overlap, "launch_pdl": overlap} if overlap else {"PDL": False}
