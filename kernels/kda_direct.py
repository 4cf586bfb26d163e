"""The eight projections of ``kernels.kda`` in one launch, whole rows a program (Gluon, Hopper).

Roles by rising program id as in ``kernels.kda_decode``; each program adds up the whole of K by ``kernels.direct``, so
that no sum crosses programs and only f and g wait, for f_a and g_a:

1. rows of f_a and g_a; each raises a flag when its rows are stored;
2. rows of q, k, v, then of beta;
3. rows of f and g: they hold their weights in registers and spin until the flag of their half is complete.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.devices import capability
from kernels.direct import CHUNK, chunks_of, direct
from kernels.kda_decode import counters_of
from kernels.streaming import barrier

#: Most tokens it serves.
DIRECT_LIMIT = 32

#: Rows of f and g a program.
SHORT = 64


class Direct(NamedTuple):
    """Tile of ``n`` weight rows by ``m`` tokens; where weights wait, in steps of a chunk a warp: see ``direct``."""

    m: int
    n: int
    kept: int
    stages: int
    together: int
    num_warps: int
    registers: int | None


#: By the largest M served.
DIRECTS = {
    8: Direct(8, 16, 3, 6, 9, 4, None),
    16: Direct(16, 16, 3, 6, 5, 4, None),
    32: Direct(32, 32, 1, 5, 3, 4, None),
}


def decode_direct(
    x: torch.Tensor, w_in: torch.Tensor, w_fg: torch.Tensor, wide: torch.Tensor, beta: torch.Tensor, fg: torch.Tensor
) -> None:
    """Everything in one launch, for M ≤ 32. Arguments as in ``kernels.kda_decode.decode_rows``.

    ``w_in`` and ``w_fg`` are read while the kernels ahead still run: they must not be written by one that launches
    its dependents early.

    Raises:
        NotImplementedError: more than 32 tokens, sizes that do not divide into tiles, 32-bit elements, tensors that do
            not begin at multiples of 16 bytes, or no Hopper GPU.
    """
    cut = next((cut for limit, cut in DIRECTS.items() if limit >= x.shape[0]), None)
    if cut is None:
        raise NotImplementedError(f"direct serves up to {DIRECT_LIMIT} tokens, got {x.shape[0]}")
    launch(x, w_in, w_fg, wide, beta, fg, cut)


def launch(
    x: torch.Tensor,
    w_in: torch.Tensor,
    w_fg: torch.Tensor,
    wide: torch.Tensor,
    beta: torch.Tensor,
    fg: torch.Tensor,
    cut: Direct,
) -> None:
    """``decode_direct`` with a given cut."""
    (M, K), (_, D, R), H = x.shape, w_fg.shape, beta.shape[1]
    if capability(x.device)[0] != 9:
        raise NotImplementedError("direct uses TMA and launches ahead, for Hopper GPUs (compute capability 9.0)")
    if R % cut.n or D % SHORT or 3 * D % cut.n or K % CHUNK or R & (R - 1):
        raise NotImplementedError(
            f"direct needs K % {CHUNK} == 0, D % {SHORT} == 0 and a rank that is a power of two, got {K}, {D} and {R}"
        )
    if x.element_size() != 2 or (x.data_ptr() | w_in.data_ptr() | w_fg.data_ptr()) % 16:
        raise NotImplementedError("direct needs 16-bit elements at multiples of 16 bytes")
    span = CHUNK * cut.num_warps
    steps = triton.cdiv(K, span)
    programs = (3 * D + 2 * R) // cut.n + triton.cdiv(H, cut.n) + 2 * D // SHORT
    options = {"maxnreg": cut.registers} if cut.registers else {}
    _decode_direct[(programs,)](
        chunks_of(w_in, cut.n, cut.num_warps), w_in, w_fg, x, wide, beta, fg, counters_of(x.device), M, H, K,
        EVEN_K=K % span == 0, STEPS=steps, D=D, R=R, SHORT=SHORT, BLOCK_M=cut.m, KEPT=min(cut.kept, steps),
        STAGES=max(1, min(cut.stages, steps - cut.kept)), TOGETHER=cut.together, num_warps=cut.num_warps,
        launch_pdl=True, **options,
    )  # fmt: skip


@gluon.jit
def _decode_direct(
    chunks, w_in, w_fg, x, wide, beta, fg, counters, M, H, K,
    EVEN_K: gl.constexpr, STEPS: gl.constexpr, D: gl.constexpr, R: gl.constexpr, SHORT: gl.constexpr,
    BLOCK_M: gl.constexpr, KEPT: gl.constexpr, STAGES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    gdc_launch_dependents()
    pid = gl.program_id(0)
    short = gl.num_programs(0) - 2 * D // SHORT
    if pid < short:
        _long(pid, chunks, w_in, x, wide, beta, counters, M, H, K, EVEN_K, STEPS, D, R, BLOCK_M, KEPT, STAGES, TOGETHER)
    else:
        _short(pid - short, w_fg, wide, fg, counters, M, D, R, chunks.block_type.shape[1], SHORT, BLOCK_M)


@gluon.jit
def _long(
    pid, chunks, w_in, x, wide, beta, counters, M, H, K,
    EVEN_K: gl.constexpr, STEPS: gl.constexpr, D: gl.constexpr, R: gl.constexpr,
    BLOCK_M: gl.constexpr, KEPT: gl.constexpr, STAGES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """Rows of f_a and g_a, then of q, k, v, then of beta, which lies behind f_a and g_a in the weight."""
    ROWS: gl.constexpr = chunks.block_type.shape[1]
    WIDTH: gl.constexpr = 3 * D + 2 * R
    LOW: gl.constexpr = 2 * R // ROWS
    is_low = pid < LOW
    bulk = (pid - LOW) * ROWS
    row = gl.where(is_low, 3 * D + pid * ROWS, bulk + gl.where(bulk < 3 * D, 0, 2 * R))
    # f_a and g_a are the ones waited for: the others see to x.
    spread = (gl.where(is_low, M, pid - LOW), 3 * D // ROWS)
    total = direct(
        chunks, w_in, x, row, 0, spread, M, WIDTH + H, K, EVEN_K, STEPS, BLOCK_M, KEPT, STAGES, TOGETHER
    )  # fmt: skip
    result = total.to(wide.dtype.element_ty)
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, result.type.layout))[:, None]
    tokens = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, result.type.layout))[None, :]
    if row >= WIDTH:
        rows += row - WIDTH
        gl.store(beta + tokens * H + rows, result, (tokens < M) & (rows < H))
    else:
        gl.store(wide + tokens * WIDTH + row + rows, result, tokens < M)
    if is_low:
        # One thread raises the flag for all of them: their stores must come before its release.
        barrier()
        gl.atomic_add(counters + pid // (LOW // 2), 1, sem="release", scope="gpu")


@gluon.jit
def _short(
    pid, w_fg, wide, fg, counters, M,
    D: gl.constexpr, R: gl.constexpr, ROWS: gl.constexpr, SHORT: gl.constexpr, BLOCK_M: gl.constexpr,
):  # fmt: skip
    """Rows of f, then of g."""
    WIDTH: gl.constexpr = 3 * D + 2 * R
    layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [gl.num_warps(), 1], [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 8)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 8)
    half = pid * SHORT // D
    rows = pid * SHORT + gl.arange(0, SHORT, layout=gl.SliceLayout(1, left))
    weight = gl.load(w_fg + rows[:, None] * R + gl.arange(0, R, layout=gl.SliceLayout(0, left))[None, :])
    gdc_wait()
    seen = gl.atomic_add(counters + half, 0, sem="acquire", scope="gpu")
    while seen < R // ROWS:
        seen = gl.atomic_add(counters + half, 0, sem="acquire", scope="gpu")
    depth = gl.arange(0, R, layout=gl.SliceLayout(1, right))[:, None]
    tokens = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, right))[None, :]
    # .cg: written by another multiprocessor a moment ago, so never from this one's L1.
    at = wide + tokens * WIDTH + 3 * D + half * R + depth
    low = gl.load(at, mask=tokens < M, other=0.0, cache_modifier=".cg")
    total = mma_v2(weight, low, gl.zeros((SHORT, BLOCK_M), gl.float32, layout))
    rows = pid * SHORT - half * D + gl.arange(0, SHORT, layout=gl.SliceLayout(1, layout))[:, None]
    tokens = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, layout))[None, :]
    gl.store(fg + half * M * D + tokens * D + rows, total.to(fg.dtype.element_ty), tokens < M)
    # The last program of this role puts the flags back: every other one has passed them.
    barrier()
    if gl.atomic_add(counters + 2, 1, sem="acq_rel", scope="gpu") == 2 * D // SHORT - 1:
        gl.store(counters, 0)
        gl.store(counters + 1, 0)
        gl.store(counters + 2, 0)
