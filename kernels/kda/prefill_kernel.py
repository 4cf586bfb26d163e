"""The eight projections of ``kernels.kda`` in one persistent launch, for many tokens.

One program on each multiprocessor works through a list of tiles, in this order:

1. *low*: 128 tokens of f_a and of g_a, each multiplied by its second weight while it is still in registers. So f and g
   need no launch of their own, and the longest tiles start first;
2. *big*: 128 tokens by 256 columns of q, k, v, as many as fill whole waves of the GPU;
3. *small*: the rest of q, k, v in 64 columns, and beta. A last wave of big tiles would leave most of the GPU idle: at
   M = 4096 it would occupy 20 of 132 multiprocessors.

Operands are loaded by TMA, whose descriptors mask tokens beyond M.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.common.devices import capability, sm_count

BLOCK_M = 128
BLOCK_K = 64
BIG = 256
SMALL = 64


@triton.jit
def _prefill(
    x, w_low, w_big, w_small, w_fg, wide_big, wide_small, f, g, beta,
    M, H, big_end, small_end,
    K: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BIG: tl.constexpr, SMALL: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    COLUMNS: tl.constexpr = 3 * D // BIG
    tiles_m = tl.cdiv(M, BLOCK_M)
    for tile in range(tl.program_id(0), tiles_m, PROGRAMS):
        _low_tile(tile * BLOCK_M, x, w_low, w_fg, f, g, K, D, R, BLOCK_M, BLOCK_K)
    # Each loop begins with the program at which the preceding loop ended, so that no program gets two first tiles.
    skipped = tl.cdiv(tl.maximum(tiles_m - tl.program_id(0), 0), PROGRAMS)
    first = tl.program_id(0) + skipped * PROGRAMS
    # Columns innermost: a wave needs few rows of x and the whole weight, which stays in L2. Flattened, so that the
    # loads of the next tile overlap the store of this tile.
    for tile in tl.range(first, big_end, PROGRAMS, flatten=True):
        row = (tile - tiles_m) // COLUMNS * BLOCK_M
        column = (tile - tiles_m) % COLUMNS * BIG
        total = tl.zeros((BLOCK_M, BIG), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            total = tl.dot(x.load([row, start]), w_big.load([column, start]).T, total)
        # In two halves: the store is staged in shared memory, and half the buffer leaves room for a fourth stage.
        left_half, right_half = tl.reshape(total, (BLOCK_M, 2, BIG // 2)).permute(0, 2, 1).split()
        wide_big.store([row, column], left_half.to(wide_big.dtype))
        wide_big.store([row, column + BIG // 2], right_half.to(wide_big.dtype))
    skipped = tl.cdiv(tl.maximum(big_end - first, 0), PROGRAMS)
    first += skipped * PROGRAMS
    for tile in range(first, small_end, PROGRAMS):
        big = big_end - tiles_m + (tile - big_end) // (BIG // SMALL)
        row = big // COLUMNS * BLOCK_M
        column = big % COLUMNS * BIG + (tile - big_end) % (BIG // SMALL) * SMALL
        is_beta = tile >= small_end - tiles_m
        if is_beta:
            row = (tile - (small_end - tiles_m)) * BLOCK_M
            column = 3 * D + 2 * R
        total = tl.zeros((BLOCK_M, SMALL), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            total = tl.dot(x.load([row, start]), w_small.load([column, start]).T, total)
        if is_beta:
            tokens = row + tl.arange(0, BLOCK_M)
            heads = tl.arange(0, SMALL)
            tl.store(
                beta + tokens[:, None] * H + heads[None, :], total.to(beta.dtype.element_ty),
                (tokens < M)[:, None] & (heads < H)[None, :],
            )  # fmt: skip
        else:
            wide_small.store([row, column], total.to(wide_small.dtype))


@triton.jit
def _low_tile(
    row, x, w_low, w_fg, f, g,
    K: tl.constexpr, D: tl.constexpr, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    low_f = tl.zeros((BLOCK_M, R), dtype=tl.float32)
    low_g = tl.zeros((BLOCK_M, R), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        tile = x.load([row, start])
        low_f = tl.dot(tile, w_low.load([3 * D, start]).T, low_f)
        low_g = tl.dot(tile, w_low.load([3 * D + R, start]).T, low_g)
    rounded = low_f.to(f.dtype)
    for column in range(0, D, R):
        f.store([row, column], tl.dot(rounded, w_fg.load([column, 0]).T).to(f.dtype))
    rounded = low_g.to(g.dtype)
    for column in range(0, D, R):
        g.store([row, column], tl.dot(rounded, w_fg.load([D + column, 0]).T).to(g.dtype))


def prefill(x: Tensor, w_in: Tensor, w_fg: Tensor, wide: Tensor, beta: Tensor, fg: Tensor) -> None:
    """Compute all eight products for any number of tokens; fastest for thousands.

    Args:
        x: [M, K], contiguous; so is every tensor.
        w_in: [3·D + 2·R + H, K], rows of q, k, v, f_a, g_a, beta.
        w_fg: [2, D, R].
        wide: [M, 3·D + 2·R], of which q, k and v are written.
        beta: [M, H], written.
        fg: [2, M, D], written.

    Raises:
        NotImplementedError: sizes that do not divide into tiles, 32-bit elements, or a GPU before Hopper.
    """
    (M, K), (_, D, R), H = x.shape, w_fg.shape, beta.shape[1]
    if R != 128 or 3 * D % BIG or H > SMALL:
        raise NotImplementedError(
            f"persistent needs rank R = 128, 3·D % {BIG} == 0 and H ≤ {SMALL}, got R = {R}, D = {D}, H = {H}"
        )
    if x.element_size() != 2 or K % 8:
        raise NotImplementedError(f"persistent needs 16-bit elements and K % 8 == 0 for TMA, got {x.dtype} and K = {K}")
    if K <= BLOCK_K:  # Triton 3.6 cannot compile loops over K that have one iteration.
        raise NotImplementedError(f"persistent needs K > {BLOCK_K}, got {K}")
    if x.device.type != "cpu" and capability(x.device) < (9, 0):
        raise NotImplementedError("persistent needs TMA, which GPUs have from compute capability 9.0 on")
    programs = sm_count(x.device)
    tiles_m = triton.cdiv(M, BLOCK_M)
    big = tiles_m * (3 * D // BIG)
    # Whole waves only, unless the rest fills most of another wave. Small tiles would then take longer.
    waves, left = divmod(tiles_m + big, programs)
    big_end = tiles_m + big if left * 3 > programs * 2 else max(waves * programs, tiles_m)
    small_end = big_end + (tiles_m + big - big_end) * (BIG // SMALL) + tiles_m
    weight = [TensorDescriptor(w_in, list(w_in.shape), [K, 1], [rows, BLOCK_K]) for rows in (R, BIG, SMALL)]
    targets = [TensorDescriptor(wide, list(wide.shape), [wide.shape[1], 1], [BLOCK_M, n]) for n in (BIG // 2, SMALL)]
    _prefill[(min(programs, small_end),)](
        TensorDescriptor(x, [M, K], [K, 1], [BLOCK_M, BLOCK_K]), *weight,
        TensorDescriptor(w_fg, [2 * D, R], [R, 1], [R, R]), *targets,
        *(TensorDescriptor(half, [M, D], [D, 1], [BLOCK_M, R]) for half in fg), beta,
        M, H, big_end, small_end, K=K, D=D, R=R,
        BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K, BIG=BIG, SMALL=SMALL, PROGRAMS=programs,
        num_warps=8, num_stages=4,
    )  # fmt: skip
