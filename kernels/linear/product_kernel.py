"""Variant "split_k" of ``kernels.linear``: tensor-core products of few rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.devices import sm_count
from kernels.common.pdl import launch_options
from kernels.common.tables import SearchSpace
from kernels.common.workspace import once_per_device
from kernels.linear.table import TABLE, search_space


class Tile(NamedTuple):
    """Tile of the output; ``swapped`` makes rows of the weight the M side of the tensor cores' product.

    With programmatic dependent launch the weights of the first ``ahead`` steps are prefetched before the wait.
    """

    m: int
    n: int
    k: int
    swapped: bool
    num_warps: int
    num_stages: int
    ahead: int = 0


#: Tile of "split_k". Hopper's products have 64 rows on their M side. With few rows of x these are rows of the weight.
SPLIT = TABLE.maybe("split_k", Tile, "M K N", upto="M")
MAX_SPLIT = 16


def tiles_at(M: int, K: int, N: int) -> SearchSpace:
    """Return the tiles that ``lockstep tune`` tries for "split_k": 32 or 64 rows of the weight, steps of 64 to 256."""
    if M > 64:
        return search_space("split_k", [Tile(128, n, 128, False, 8, s) for n in (32, 64) for s in (4, 5)], M, K, N)
    m = max(16, triton.next_power_of_2(M))
    shapes = [(n, k, stages) for n in (32, 64) for k, stages in ((64, 8), (128, 5), (128, 6), (256, 3))]
    return search_space("split_k", [Tile(m, n, k, n == 64, 4, stages, 2) for n, k, stages in shapes], M, K, N)


def run_product(tile: Tile, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, *, pdl: bool) -> None:
    """Write ``out = x @ weight.T + bias``; split K so that all programs fit in one wave, one per multiprocessor."""
    (M, K), N = x.shape, weight.shape[0]
    tiles_m, tiles_n, steps = triton.cdiv(M, tile.m), triton.cdiv(N, tile.n), triton.cdiv(K, tile.k)
    most_parts = min(MAX_SPLIT, sm_count(x.device) // (tiles_m * tiles_n))
    parts = max((n for n in range(1, most_parts + 1) if steps % n == 0), default=1)
    partials = counters = None
    if parts > 1:
        partials = x.new_empty(tiles_m * tiles_n * parts * tile.m * tile.n, dtype=torch.float32)
        counters = _counters(x.device)
    _product_kernel[(tiles_n, parts, tiles_m)](
        x, weight, bias, out, partials, counters, M, N, K,
        PDL=pdl, HAS_BIAS=bias is not None, EVEN_K=K % tile.k == 0, SWAPPED=tile.swapped,
        PARTS=parts, STEPS=steps // parts, BLOCK_M=tile.m, BLOCK_N=tile.n, BLOCK_K=tile.k,
        FETCHED=min(tile.ahead, steps // parts) if pdl else 0,
        num_warps=tile.num_warps, num_stages=tile.num_stages, **launch_options(pdl),
    )  # fmt: skip


@once_per_device
def _counters(device: torch.device) -> Tensor:
    """Return a counter for every tile with split K: zero before and after every launch."""
    return torch.zeros(sm_count(device), dtype=torch.int32, device=device)


@triton.jit
def _product_kernel(
    x, weight, bias, out, partials, counters, M, N, K,
    PDL: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr, SWAPPED: tl.constexpr, PARTS: tl.constexpr,
    STEPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FETCHED: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    part = tl.program_id(1)
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = part * (STEPS * BLOCK_K) + tl.arange(0, BLOCK_K)
    # Rows of the weight beyond the edge read row 0 instead of being masked, and are never stored.
    w_row = weight + tl.where(n < N, n, 0).to(tl.int64) * K
    x_row = x + m.to(tl.int64) * K
    ROWS: tl.constexpr = BLOCK_N if SWAPPED else BLOCK_M
    COLUMNS: tl.constexpr = BLOCK_M if SWAPPED else BLOCK_N
    prefetch_steps(w_row, part * (STEPS * BLOCK_K), K, FETCHED, BLOCK_K)
    if PDL:
        # Nothing is read before this wait, because the preceding kernel may still write it. Later writes reach what is
        # prefetched into L2.
        gdc_wait()
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for _ in range(STEPS):
        if EVEN_K:
            w_tile = tl.load(w_row[:, None] + k[None, :])
            x_tile = tl.load(x_row[:, None] + k[None, :], mask=m[:, None] < M, other=0.0)
        else:
            w_tile = tl.load(w_row[:, None] + k[None, :], mask=k[None, :] < K, other=0.0)
            x_tile = tl.load(x_row[:, None] + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        if SWAPPED:
            acc = tl.dot(w_tile, tl.trans(x_tile), acc, input_precision="ieee")
        else:
            acc = tl.dot(x_tile, tl.trans(w_tile), acc, input_precision="ieee")
        k += BLOCK_K
    if SWAPPED:
        acc = tl.trans(acc)
    if PARTS == 1:
        store(acc, bias, out, m, n, M, N, HAS_BIAS)
    else:
        within = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        partials += tile * (PARTS * BLOCK_M * BLOCK_N)
        tl.store(partials + part * (BLOCK_M * BLOCK_N) + within, acc)
        # One thread counts for all: every thread's stores must precede its release.
        tl.debug_barrier()
        if tl.atomic_add(counters + tile, 1, sem="acq_rel") == PARTS - 1:
            # Added in order, whichever program is last, so that the same input gives the same bits. Read from L2 (.cg).
            acc = tl.load(partials + within, cache_modifier=".cg")
            for other in tl.static_range(1, PARTS):
                acc += tl.load(partials + other * (BLOCK_M * BLOCK_N) + within, cache_modifier=".cg")
            store(acc, bias, out, m, n, M, N, HAS_BIAS)
            tl.store(counters + tile, 0)


@triton.jit
def prefetch_steps(w_row, first, K, STEPS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Prefetch ``STEPS`` blocks of the weight rows at ``w_row``, the first at column ``first``, into L2."""
    for step in tl.static_range(STEPS):
        # Sectors of 32 bytes.
        within = first + step * BLOCK_K + tl.arange(0, BLOCK_K // 16) * 16
        at = w_row[:, None] + tl.where(within < K, within, 0)[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1];\nmov.u32 $0, 0;", "=r,l", [at.to(tl.int64)],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def store(acc, bias, out, m, n, M, N, HAS_BIAS: tl.constexpr):
    """Store the sums of a tile, with the bias."""
    if HAS_BIAS:
        acc += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(out + m.to(tl.int64)[:, None] * N + n[None, :], acc.to(out.dtype.element_ty), mask=inside)
