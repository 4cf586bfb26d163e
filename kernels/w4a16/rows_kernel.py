"""Variant "triton" of ``kernels.w4a16``: a plain kernel for weights packed by rows, as in GPTQ checkpoints."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from kernels.call_plans import planned
from kernels.common.devices import require_triton
from kernels.w4a16.arguments import expect_rows, output
from kernels.w4a16.int4 import expect_quantised, pack_rows


@planned
def triton_rows(x: Tensor, words: Tensor, scales: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply by one plain Triton kernel: shift and mask a tile of codes, scale it, multiply.

    Args:
        x: float16 [M, K].
        words: int32 [⌈K / 8⌉, N], see ``int4.pack_rows``.
        scales: float16 [groups, N].
        out: float16 [M, N] to write into.

    Raises:
        ValueError: a shape, dtype or device does not fit; the message names the argument.
        NotImplementedError: a group that is not a multiple of 64, or a tensor that is not on a GPU.
    """
    require_triton(x, "triton")
    K, N = expect_rows(x, words, scales)
    M, group, block_k = len(x), K // len(scales), 64
    if len(scales) > 1 and group % block_k:
        raise NotImplementedError(f"triton needs groups of a multiple of {block_k} rows, got {group}")
    out = output(x, N, out)
    block_m, block_n = (16, 64) if M <= 16 else (64, 128)
    grid = (triton.cdiv(N, block_n), triton.cdiv(M, block_m))
    _multiply_rows[grid](x, words, scales, out, M, N, K, group, BM=block_m, BN=block_n, BK=block_k, num_stages=4)
    return out


def prepare_rows(codes: Tensor, scales: Tensor) -> dict[str, Any]:
    """Return the arguments of ``triton_rows`` from the suite's inputs."""
    expect_quantised(codes, scales)
    return {"words": pack_rows(codes)}


@triton.jit
def _multiply_rows(x, words, scales, out, M, N, K, group, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    shifts = (k % 8) * 4
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        at = start + k
        values = tl.load(x + m[:, None] * K + at[None, :], (m[:, None] < M) & (at[None, :] < K), other=0.0)
        # Every word is loaded once for each of its eight codes; seven of these loads hit the cache.
        inside = (at[:, None] < K) & (n[None, :] < N)
        packed = tl.load(words + (at // 8)[:, None] * N + n[None, :], inside, other=0)
        scale = tl.load(scales + (start // group) * N + n, n < N, other=0.0)
        codes = (packed >> shifts[:, None]) & 0xF
        total = tl.dot(values, (codes - 8).to(tl.float16) * scale[None, :], total)
    kept = (m[:, None] < M) & (n[None, :] < N)
    tl.store(out + m.to(tl.int64)[:, None] * N + n[None, :], total.to(tl.float16), kept)
