"""Variant "stream" of ``kernels.linear``: split K, with weights loaded before the preceding kernel has ended."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.common.devices import sm_count
from kernels.common.partial_sums import empty_tiles, mailbox, post_tile, read_tiles
from kernels.common.streaming import prefetch_rows, prefetch_tokens, stream, tiles_of
from kernels.linear.table import TABLE


class Stream(NamedTuple):
    """Tile of ``m`` tokens by ``n`` weight rows; steps of ``k``; stages of the rings of weights and tokens.

    K is split into as many parts as ``slots`` programs for each multiprocessor allow.
    """

    m: int
    n: int
    k: int
    w_stages: int
    x_stages: int
    slots: int
    num_warps: int


#: Tile of "stream".
STREAM = TABLE.maybe("stream", Stream, "M K N", upto="M")
MOST_PARTS = 16


def parts_of(config: Stream, K: int, N: int, device: torch.device) -> int:
    """Return the number of parts of K: the most that ``config.slots`` allows and that divides the steps of K."""
    steps = triton.cdiv(K, config.k)
    limit = min(MOST_PARTS, config.slots * sm_count(device) // triton.cdiv(N, config.n))
    return max((parts for parts in range(1, limit + 1) if steps % parts == 0), default=1)


def launch(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, config: Stream, parts: int) -> None:
    """Write ``out = x @ weight.T + bias``. The caller has checked every argument."""
    (M, K), N = x.shape, weight.shape[0]
    tiles, steps = triton.cdiv(N, config.n), triton.cdiv(K, config.k)
    _stream_kernel[(tiles, parts)](
        tiles_of(weight, config.n, config.k), tiles_of(x, config.m, config.k), weight, x, bias, out,
        mailbox(x.device) if parts > 1 else None, M, N, K,
        HAS_BIAS=bias is not None, PARTS=parts, STEPS=triton.cdiv(steps, parts),
        W_STAGES=config.w_stages, X_STAGES=config.x_stages, num_warps=config.num_warps, launch_pdl=True,
    )  # fmt: skip


@gluon.jit
def _stream_kernel(
    weight, x, w_plain, x_plain, bias, out, mail, M, N, K, HAS_BIAS: gl.constexpr, PARTS: gl.constexpr,
    STEPS: gl.constexpr, W_STAGES: gl.constexpr, X_STAGES: gl.constexpr,
):  # fmt: skip
    BLOCK_N: gl.constexpr = weight.block_type.shape[0]
    BLOCK_K: gl.constexpr = weight.block_type.shape[1]
    BLOCK_M: gl.constexpr = x.block_type.shape[0]
    gdc_launch_dependents()
    tile = gl.program_id(0)
    part = gl.program_id(1)
    first = part * STEPS * BLOCK_K
    # Prefetch into L2 what is not loaded to shared memory before the wait. Later writes of x reach L2 as well.
    prefetch_tokens(x_plain, tile, gl.num_programs(0), first, M, K, STEPS * BLOCK_K)
    if STEPS > W_STAGES:
        prefetch_rows(w_plain, tile * BLOCK_N, first + W_STAGES * BLOCK_K, N, K, BLOCK_N, (STEPS - W_STAGES) * BLOCK_K)
    total = stream(weight, x, tile * BLOCK_N, first, STEPS, W_STAGES, X_STAGES)
    rows = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, total.type.layout))
    tokens = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, total.type.layout))
    if PARTS == 1:
        _store(total, bias, out, tile * BLOCK_N + rows, tokens, M, N, HAS_BIAS)
    else:
        SIZE: gl.constexpr = BLOCK_M * BLOCK_N
        mail += tile * ((PARTS - 1) * SIZE) + rows[:, None] * BLOCK_M + tokens[None, :]
        if part < PARTS - 1:
            post_tile(mail + part * SIZE, total)
        else:
            # Added in the order of the parts, so that the same input gives the same bits.
            total += read_tiles(mail, PARTS - 1, SIZE)
            empty_tiles(mail, PARTS - 1, SIZE)
            _store(total, bias, out, tile * BLOCK_N + rows, tokens, M, N, HAS_BIAS)


@gluon.jit
def _store(total, bias, out, rows, tokens, M, N, HAS_BIAS: gl.constexpr):
    if HAS_BIAS:
        total += gl.load(bias + rows, mask=rows < N, other=0.0).to(gl.float32)[:, None]
    inside = (rows < N)[:, None] & (tokens < M)[None, :]
    gl.store(out + tokens.to(gl.int64)[None, :] * N + rows[:, None], total.to(out.dtype.element_ty), mask=inside)
