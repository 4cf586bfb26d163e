"""The variant "direct" of ``kernels.linear``: whole rows of the weight a program, by ``kernels.direct``.

Programs need not wait for each other where each adds up the whole of K: a sum across programs is a chain of hops
through L2 (partial sums out, a counter, partial sums in). What it costs is that each program reads all of x.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.devices import sm_count
from kernels.direct import CHUNK, chunks_of, direct
from kernels.linear_stream import counters
from kernels.streaming import barrier


class Direct(NamedTuple):
    """Tile of ``n`` weight rows by ``m`` tokens and K in ``parts``; where weights wait, in steps of a chunk a warp."""

    m: int
    n: int
    parts: int
    kept: int
    stages: int
    together: int
    num_warps: int
    registers: int | None


#: Up to this many rows → tile. Two programs fit a multiprocessor.
DIRECTS = {
    8: Direct(8, 16, 1, 2, 6, 8, 8, None),
    16: Direct(16, 16, 1, 2, 6, 4, 8, None),
    32: Direct(32, 64, 4, 0, 3, 2, 4, None),
}


def launch(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, cut: Direct) -> None:
    """``out = x @ weight.T + bias``; every argument has been checked."""
    (M, K), N = x.shape, weight.shape[0]
    tiles = triton.cdiv(N, cut.n)
    # Many tiles keep the GPU busy without a split, and there is a counter for each multiprocessor.
    parts = cut.parts if tiles <= sm_count(x.device) else 1
    span = CHUNK * cut.num_warps * parts
    steps = triton.cdiv(K, span)
    partials = x.new_empty(tiles * parts * cut.m * cut.n, dtype=torch.float32) if parts > 1 else None
    options = {"maxnreg": cut.registers} if cut.registers else {}
    _direct_kernel[(tiles, parts)](
        chunks_of(weight, cut.n, cut.num_warps), weight, x, bias, out, partials,
        counters(x.device) if parts > 1 else None, M, N, K,
        HAS_BIAS=bias is not None, EVEN_K=K % span == 0, PARTS=parts, STEPS=steps,
        BLOCK_M=cut.m, KEPT=min(cut.kept, steps), STAGES=max(1, min(cut.stages, steps - cut.kept)),
        TOGETHER=cut.together, num_warps=cut.num_warps, launch_pdl=True, **options,
    )  # fmt: skip


@gluon.jit
def _direct_kernel(
    chunks, weight, x, bias, out, partials, counters, M, N, K,
    HAS_BIAS: gl.constexpr, EVEN_K: gl.constexpr, PARTS: gl.constexpr, STEPS: gl.constexpr, BLOCK_M: gl.constexpr,
    KEPT: gl.constexpr, STAGES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    gdc_launch_dependents()
    WARPS: gl.constexpr = gl.num_warps()
    ROWS: gl.constexpr = chunks.block_type.shape[1]
    tile = gl.program_id(0)
    part = gl.program_id(1)
    row = tile * ROWS
    result = direct(
        chunks, weight, x, row, part * STEPS * WARPS, (tile, gl.num_programs(0)), M, N, K,
        EVEN_K, STEPS, BLOCK_M, KEPT, STAGES, TOGETHER,
    )  # fmt: skip
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, result.type.layout))
    tokens = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, result.type.layout))
    if PARTS > 1:
        within = rows[:, None] * BLOCK_M + tokens[None, :]
        partials += tile * (PARTS * BLOCK_M * ROWS)
        gl.store(partials + part * (BLOCK_M * ROWS) + within, result)
        # One thread counts for all of them: their stores must come before its release.
        barrier()
        if gl.atomic_add(counters + tile, 1, sem="acq_rel") == PARTS - 1:
            # In order, whoever is last: the same input gives the same bits. From L2, where the others wrote.
            result = gl.load(partials + within, cache_modifier=".cg")
            for other in gl.static_range(1, PARTS):
                result += gl.load(partials + other * (BLOCK_M * ROWS) + within, cache_modifier=".cg")
            _store(result, bias, out, row + rows, tokens, M, N, HAS_BIAS)
            gl.store(counters + tile, 0)
    else:
        _store(result, bias, out, row + rows, tokens, M, N, HAS_BIAS)


@gluon.jit
def _store(total, bias, out, rows, tokens, M, N, HAS_BIAS: gl.constexpr):
    if HAS_BIAS:
        total += gl.load(bias + rows, mask=rows < N, other=0.0).to(gl.float32)[:, None]
    inside = (rows < N)[:, None] & (tokens < M)[None, :]
    gl.store(out + tokens.to(gl.int64)[None, :] * N + rows[:, None], total.to(out.dtype.element_ty), mask=inside)
