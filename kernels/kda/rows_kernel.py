"""Variant "rows" of ``kernels.kda``: dot products without tensor cores, one launch (``kernels.kda.ready_flags``)."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from kernels.kda.ready_flags import await_flag, counters_of, leave, overlap, raise_flag
from kernels.kda.table import TABLE

#: Maximum number of tokens.
ROWS_LIMIT = 4


class Rows(NamedTuple):
    """Tile config of ``decode_rows``: weight rows for each program: ``LONG`` for products of x, ``SHORT`` for f, g."""

    LONG: int
    SHORT: int
    num_warps: int


ROWS = TABLE.choice("rows", Rows, "M", upto="M")


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
    """Return a tuple with ``tile`` appended, by an expression that Triton compiles and a type checker accepts."""
    return tiles + (tile,)  # noqa: RUF005


@triton.jit
def _long_rows(
    pid, x, w_in, wide, beta, counters, H,
    M: tl.constexpr, K: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    HEAD: tl.constexpr, TAIL: tl.constexpr, LONG: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Compute ``LONG`` rows of the products of x: the first programs f_a and g_a, the next q, k, v, the last beta."""
    WIDTH: tl.constexpr = 3 * D + 2 * R
    LOW: tl.constexpr = 2 * R // LONG
    position = tl.where(pid < LOW, pid + 3 * D // LONG, tl.where(pid * LONG < WIDTH, pid - LOW, pid))
    rows = position * LONG + tl.arange(0, LONG)
    inside = rows < WIDTH + H
    head = tl.arange(0, HEAD)
    tail = HEAD + tl.arange(0, TAIL)
    tail_ok = tail < K
    # The preceding kernel does not write the weights: load them while it finishes.
    w_head = tl.load(w_in + rows[:, None] * K + head[None, :], inside[:, None], 0.0)
    w_tail = tl.load(w_in + rows[:, None] * K + tail[None, :], inside[:, None] & tail_ok[None, :], 0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
    # Load all tokens before any store: the compiler cannot move a load before a store that may alias it.
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
        raise_flag(counters + pid // (LOW // 2))


@triton.jit
def _short_rows(
    pid, w_fg, wide, fg, counters,
    M: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    LONG: tl.constexpr, SHORT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Compute ``SHORT`` rows of f from f_a or, in the second half of the programs, of g from g_a."""
    WIDTH: tl.constexpr = 3 * D + 2 * R
    rows = pid * SHORT + tl.arange(0, SHORT)
    half = pid * SHORT // D
    depth = tl.arange(0, R)
    weight = tl.load(w_fg + rows[:, None] * R + depth[None, :]).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
    await_flag(counters + half, R // LONG)
    lows = ()
    for m in tl.static_range(M):
        # .cg bypasses L1, because another multiprocessor has just written these values.
        lows = _and(lows, tl.load(wide + m * WIDTH + 3 * D + half * R + depth, cache_modifier=".cg"))
    for m in tl.static_range(M):
        total = tl.sum(weight * lows[m].to(tl.float32)[None, :], 1)
        tl.store(fg + (half * M + m) * D + rows - half * D, total.to(fg.dtype.element_ty))
    leave(counters, 2 * D // SHORT)


def decode_rows(x: Tensor, w_in: Tensor, w_fg: Tensor, wide: Tensor, beta: Tensor, fg: Tensor) -> None:
    """Compute all eight products without tensor cores, whole rows of the weight for each program, for M ≤ 4.

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
    config = ROWS(x.device, M)
    if M > ROWS_LIMIT:
        raise NotImplementedError(f"rows serves up to {ROWS_LIMIT} tokens, got {M}")
    if R % config.LONG or D % config.SHORT or R & (R - 1):
        raise NotImplementedError(f"rows needs D % {config.SHORT} == 0 and R a power of two, got D = {D}, R = {R}")
    head = 1 << (K.bit_length() - 1)
    programs = w_in.shape[0] - H
    grid = (programs // config.LONG + triton.cdiv(H, config.LONG) + 2 * D // config.SHORT,)
    _decode_rows[grid](
        x, w_in, w_fg, wide, beta, fg, counters_of(x.device), H,
        M=M, K=K, D=D, R=R, HEAD=head, TAIL=max(triton.next_power_of_2(K - head), 16),
        LONG=config.LONG, SHORT=config.SHORT, num_warps=config.num_warps, **overlap(x),
    )  # fmt: skip
