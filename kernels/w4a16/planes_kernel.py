"""Int4 weights in planes times float16 tokens, unpacked from shared memory to the tensor core's registers.

For the layout see ``int4.pack_planes``, for the design docs/evidence/kernels/w4a16.md.
"""

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
from kernels.w4a16.int4 import PLANE_K, has_hopper_ptx, has_wgmma, unpack_codes
from kernels.w4a16.table import SIZES, TABLE, search_space


class Tile(NamedTuple):
    """Tile config of ``planes``: ``BM`` tokens × ``BN`` output channels for each program.

    K is split so that each SM has ``fill`` programs. With ``scale_weights`` the scale multiplies each weight, so that
    nothing but asynchronous products uses the accumulator. Without it the scale multiplies each group's sum, which is
    less work while BM is small. An iteration takes ``depth`` tiles of K, if that divides a program's share. ``ahead``
    tiles of weights are prefetched into L2 before the preceding kernel has ended.
    """

    BM: int
    BN: int
    warps: int
    stages: int
    fill: int
    scale_weights: bool
    depth: int = 1
    ahead: int = 0


#: Tile of ``planes``.
TILE = TABLE.choice("planes", Tile, SIZES, upto="M", derived="codes")

#: Above this number of tokens, ``planes`` is slower than dequantising once and multiplying with cuBLAS.
LARGEST_PLANES_M = 2048

#: Maximum parts of K: adding more parts costs more time than they save.
LARGEST_SPLIT = 16

#: Output tiles with a counter in the shared buffer; a call with more tiles of split K allocates its own counters.
COUNTERS = 1 << 16


def tiles_at(M: int, K: int, N: int, group: int | str) -> SearchSpace:
    """Return the tiles that ``lockstep tune`` tries: all tokens or half of them; with few tokens, K is split more."""
    tokens = min(256, max(8, triton.next_power_of_2(M)))
    shapes = [(64, 4), (128, 4), (128, 8)] if tokens < 256 else [(64, 4), (128, 8)]
    tiles = [
        Tile(tall, wide, warps, 3 if tall == 256 else 4, fill, scale_weights=tokens > 16)
        for tall in dict.fromkeys((tokens, max(8, tokens // 2)))
        for wide, warps in shapes
        for fill in ((2, 4) if tokens <= 16 else (1, 2))
    ]
    return search_space("planes", tiles if M <= LARGEST_PLANES_M else [], M, K, N, group)


def multiply_planes(x: Tensor, words: Tensor, scales32: Tensor, out: Tensor, tile: Tile) -> None:
    """Compute ``planes`` with a given tile; the arguments are not checked."""
    (M, K), (groups, N), k_tiles = x.shape, scales32.shape, words.shape[1]
    tiles = triton.cdiv(M, tile.BM) * triton.cdiv(N, tile.BN)
    split = 1
    while split < LARGEST_SPLIT and k_tiles % (2 * split) == 0 and 2 * split * tiles <= tile.fill * sm_count(x.device):
        split *= 2
    partials = x.new_empty((tiles * split * tile.BM * tile.BN if split > 1 else 0,), dtype=torch.float32)
    hopper = has_hopper_ptx(x.device)
    _multiply_planes[(tiles, split)](
        x, words, scales32, out, partials, counters(x.device, tiles), M, N, K,
        K_TILES=k_tiles,
        STEPS=k_tiles // split,
        DEPTH=tile.depth if k_tiles // split % tile.depth == 0 else 1,
        AHEAD=min(tile.ahead, k_tiles // split) if hopper else 0,
        SPLIT=split,
        GROUP_TILES=k_tiles // groups if groups > 1 else 0,
        BM=tile.BM,
        BN=tile.BN,
        SCALE_WEIGHTS=tile.scale_weights,
        EVEN_K=K % PLANE_K == 0,
        PTX=hopper,
        WGMMA=has_wgmma(x.device),
        num_warps=tile.warps,
        num_stages=tile.stages,
        **launch_options(hopper),
    )  # fmt: skip


@triton.jit
def _multiply_planes(
    x, words, scales, out, partials, counters, M, N, K,
    K_TILES: tl.constexpr, STEPS: tl.constexpr, DEPTH: tl.constexpr, SPLIT: tl.constexpr,
    GROUP_TILES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SCALE_WEIGHTS: tl.constexpr,
    AHEAD: tl.constexpr, EVEN_K: tl.constexpr, PTX: tl.constexpr, WGMMA: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    part = tl.program_id(1)
    first = part * STEPS
    # Bands of eight token tiles, so that programs which run together share weights and tokens in L2.
    n_tiles = tl.cdiv(N, BN)
    band = tile // (8 * n_tiles)
    height = tl.minimum(tl.cdiv(M, BM) - 8 * band, 8)
    inside = tile % (8 * n_tiles)
    n_tile = inside // height
    first_m = (8 * band + inside % height) * BM
    m = tl.arange(0, BM)
    row = tl.arange(0, BN)
    n = n_tile * BN + row
    k = tl.arange(0, 128)
    blocks = (n_tile * (BN // 64) + row // 64) * K_TILES + first
    word_at = words + (blocks * 2048 + (row % 64) * 32)[:, None] + tl.arange(0, 32)[None, :]
    # Tokens beyond M repeat the last token, which is cheaper than a mask. They are never stored.
    token_at = x + first_m.to(tl.int64) * K + first * 128
    token_offset = tl.minimum(m, M - 1 - first_m)[None, :] * K + k[:, None]
    scale_at = scales + n
    if PTX:
        gdc_launch_dependents()
        if AHEAD > 0:
            # The preceding kernel does not write weights and scales, so they are loaded while it ends.
            for block in tl.static_range(BN // 64):
                _ask(words + ((n_tile * (BN // 64) + block) * K_TILES + first) * 2048, 4096 * AHEAD)
            if GROUP_TILES > 0:
                aligned_and_inside = ((n_tile + 1) * BN <= N) & (N % 4 == 0)
                if aligned_and_inside:
                    for row_ahead in range(first // GROUP_TILES, (first + AHEAD - 1) // GROUP_TILES + 1):
                        _ask(scales + row_ahead * N + n_tile * BN, 4 * BN)
        gdc_wait()
    if GROUP_TILES > 0 and not SCALE_WEIGHTS:
        following = tl.load(scale_at + (first // GROUP_TILES) * N, n < N, other=0.0)
    total = tl.zeros((BN, BM), tl.float32)
    # A constant trip count: a branch around the loop makes ptxas serialise the asynchronous products in it.
    for turn in range(STEPS // DEPTH):
        for inner in tl.static_range(DEPTH):
            step = turn * DEPTH + inner
            if WGMMA:
                finish_products()
            weights = unpack_codes(tl.load(word_at + step * 2048), PTX)
            token_tile = token_at + step * 128 + token_offset
            if EVEN_K:
                tokens = tl.load(token_tile)
            else:
                tokens = tl.load(token_tile, ((first + step) * 128 + k < K)[:, None], other=0.0)
            if GROUP_TILES == 0:
                total = tl.dot(weights, tokens, total)
            elif SCALE_WEIGHTS:
                scale = tl.load(scale_at + ((first + step) // GROUP_TILES) * N, n < N, other=0.0)
                total = tl.dot(weights * scale.to(tl.float16)[:, None], tokens, total)
            else:
                # Triton pipelines only loads that feed a product, so the next scale is loaded by hand.
                scale = following
                ahead = (n < N) & (step + 1 < STEPS)
                following = tl.load(scale_at + ((first + step + 1) // GROUP_TILES) * N, ahead, other=0.0)
                total += tl.dot(weights, tokens) * scale[:, None]
    last = True
    if SPLIT > 1:
        own = partials + tile.to(tl.int64) * (SPLIT * BN * BM) + row[:, None] * BM + tl.arange(0, BM)[None, :]
        tl.store(own + part * (BN * BM), total)
        # Every thread's partial sums must be stored before one thread counts.
        tl.debug_barrier()
        last = tl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLIT - 1
        if last:
            # Added in the order of K, not of arrival, so that the same input gives the same bits.
            total = tl.zeros((BN, BM), tl.float32)
            for other in tl.range(SPLIT, loop_unroll_factor=SPLIT if BM <= 32 else 1):
                total += tl.load(own + other * (BN * BM), cache_modifier=".cg")
            tl.store(counters + tile, 0)
    if last:
        if GROUP_TILES == 0:
            total *= tl.load(scale_at, n < N, other=0.0)[:, None]
        kept = (m[None, :] < M - first_m) & (n[:, None] < N)
        tl.store(out + first_m.to(tl.int64) * N + m[None, :] * N + n[:, None], total.to(tl.float16), kept)


@triton.jit
def _ask(at, SIZE: tl.constexpr):
    """Prefetch SIZE bytes of global memory into L2 by one thread; size and address are multiples of 16."""
    tl.inline_asm_elementwise(
        """{
.reg .pred first;
.reg .b32 thread;
mov.u32 thread, %tid.x;
setp.eq.u32 first, thread, 0;
@first cp.async.bulk.prefetch.L2.global [$1], $2;
mov.b32 $0, 0;
}""",
        "=r,l,r", [at, SIZE], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def finish_products():
    """Wait until this warp group's asynchronous products have read their operands and written their sums.

    The products read the weights from registers. Without this wait, ptxas reuses these registers in the loop while
    products of the preceding iteration still have to read them (triton-lang/triton issue 9433), which gave relative
    errors of up to 4.5 on an H200.
    """
    tl.inline_asm_elementwise(
        "wgmma.wait_group.sync.aligned 0; // no value: $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


def counters(device: torch.device, count: int) -> Tensor:
    """Return at least ``count`` counters, int32, zero before and after every launch.

    Calls on a device share the counters, so two streams must not run this kernel at once.
    """
    return _counters(device) if count <= COUNTERS else torch.zeros(count, dtype=torch.int32, device=device)


@once_per_device
def _counters(device: torch.device) -> Tensor:
    """Return the counters of arrivals at each output tile; the last program to arrive resets its counter."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)
