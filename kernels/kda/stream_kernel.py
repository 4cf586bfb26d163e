"""The eight projections of ``kernels.kda`` in one launch that loads its weights early (Gluon, Hopper).

Programs have roles by rising id as in ``kernels.kda.ready_flags``, with one round trip less between f_a, g_a and f, g:

1. partial sums of f_a and g_a, posted to a mailbox (``kernels.common.partial_sums``);
2. partial sums of q, k, v and beta; the program of a tile's last part of K adds them up;
3. rows of f and g: they load their weights, spin until all partial sums of their half are there, and add those up
   themselves. Every program of a half repeats these additions, but none waits for a program that would do them once.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, warpgroup_mma
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.devices import require_wgmma
from kernels.common.gluon_compat import barrier
from kernels.common.partial_sums import EMPTY, capacity, empty_tiles, mailbox, post_tile, read_tiles
from kernels.common.streaming import fetch, prefetch_tokens, stream, tiles_of
from kernels.common.tables import SearchSpace
from kernels.kda.ready_flags import counters_of
from kernels.kda.table import TABLE

#: Maximum number of tokens.
STREAM_LIMIT = 32

#: Rows of the weights for each program: the tensor core's M side.
ROWS = 64
BLOCK_K = 128


class Stream(NamedTuple):
    """Tile config: tokens, stages of the rings of weights and of x, parts of K for f_a and g_a and for the rest."""

    m: int
    w_stages: int
    x_stages: int
    split_low: int
    split_wide: int


#: Up to 16 tokens two programs share a multiprocessor. With more tokens, one program loads all of its part of K at
#: once.
STREAM = TABLE.maybe("stream", Stream, "M", upto="M")

#: Rings and parts to try, by the largest number of tokens: the fastest of 222 on an H100, in a chain of calls or behind
#: another kernel, and the fastest of a sweep on an H200.
_TRIED = {
    8: ((5, 4, 6, 3), (4, 6, 6, 3), (7, 4, 6, 2), (6, 4, 6, 2), (6, 6, 6, 3)),
    16: ((6, 6, 3, 2), (8, 6, 3, 1), (7, 4, 6, 1), (6, 6, 6, 2), (5, 6, 3, 3)),
    32: ((6, 3, 3, 1), (7, 4, 3, 1), (6, 6, 3, 1), (5, 6, 3, 1), (9, 9, 3, 2)),
}


def streams_at(M: int) -> SearchSpace:
    """Return the tile configs that ``lockstep tune`` tries for M tokens."""
    tokens = max(8, triton.next_power_of_2(M))
    return SearchSpace("stream", {"M": M}, [Stream(tokens, *rest) for rest in _TRIED.get(tokens, ())])


def decode_stream(
    x: Tensor, w_in: Tensor, w_fg: Tensor, wide: Tensor, beta: Tensor, fg: Tensor, config: Stream | None = None
) -> None:
    """Compute all eight products in one launch, for M ≤ 32; arguments are those of ``tiles_kernel.decode_tiles``.

    ``w_in`` and ``w_fg`` are read while preceding kernels still run: a kernel that launches its dependents early must
    not write them. f_a and g_a are not stored. Without a ``config``, the tile config is the table's.

    Raises:
        NotImplementedError: more than 32 tokens, sizes that do not divide into tiles, 32-bit elements, rows that do not
            begin at multiples of 16 bytes, or another GPU than Hopper.
    """
    config = config or STREAM(x.device, x.shape[0])
    if config is None:
        raise NotImplementedError(f"stream serves up to {STREAM_LIMIT} tokens, got {x.shape[0]}")
    (M, K), (_, D, R), H = x.shape, w_fg.shape, beta.shape[1]
    require_wgmma(x, "stream")
    if R != BLOCK_K or D % ROWS or H > ROWS:
        raise NotImplementedError(f"stream needs R = {BLOCK_K}, D % {ROWS} == 0, H ≤ {ROWS}, got R={R}, D={D}, H={H}")
    if x.element_size() != 2 or (2 * K | x.data_ptr() | w_in.data_ptr() | w_fg.data_ptr()) % 16:
        raise NotImplementedError("stream needs 16-bit elements in rows that begin at multiples of 16 bytes, for TMA")
    steps = triton.cdiv(K, BLOCK_K)
    # All parts have as many steps. If the steps do not divide evenly, K is one part.
    split_low, split_wide = (parts if steps % parts == 0 else 1 for parts in (config.split_low, config.split_wide))
    wide_tiles = 3 * D // ROWS + 1
    programs = 2 * R // ROWS * split_low + wide_tiles * split_wide
    if (sums := programs * ROWS * config.m) > (available := capacity(x.device)):
        raise NotImplementedError(f"stream needs {sums} mailbox elements for D = {D}, and the mailbox has {available}")
    _decode_stream[(programs + 2 * D // ROWS,)](
        tiles_of(w_in, ROWS, BLOCK_K), tiles_of(w_fg.view(2 * D, R), ROWS, BLOCK_K), tiles_of(x, config.m, BLOCK_K), x,
        wide, beta, fg, mailbox(x.device), counters_of(x.device), M, H,
        STEPS=steps, D=D, R=R, SPLIT_LOW=split_low, SPLIT_WIDE=split_wide,
        W_STAGES=config.w_stages, X_STAGES=config.x_stages, num_warps=4, launch_pdl=True,
    )  # fmt: skip


@gluon.jit
def _decode_stream(
    w_in, w_fg, x, x_plain, wide, beta, fg, mail, counters, M, H,
    STEPS: gl.constexpr, D: gl.constexpr, R: gl.constexpr, SPLIT_LOW: gl.constexpr, SPLIT_WIDE: gl.constexpr,
    W_STAGES: gl.constexpr, X_STAGES: gl.constexpr,
):  # fmt: skip
    ROWS: gl.constexpr = w_in.block_type.shape[0]
    LONG: gl.constexpr = 2 * R // ROWS * SPLIT_LOW + (3 * D // ROWS + 1) * SPLIT_WIDE
    gdc_launch_dependents()
    pid = gl.program_id(0)
    if pid < LONG:
        _long(
            pid, w_in, x, x_plain, wide, beta, mail, M, H,
            STEPS, D, R, SPLIT_LOW, SPLIT_WIDE, W_STAGES, X_STAGES,
        )  # fmt: skip
    else:
        _short(pid - LONG, w_fg, x, fg, mail, counters, M, D, R, SPLIT_LOW)


@gluon.jit
def _long(
    pid, w_in, x, x_plain, wide, beta, mail, M, H,
    STEPS: gl.constexpr, D: gl.constexpr, R: gl.constexpr, SPLIT_LOW: gl.constexpr, SPLIT_WIDE: gl.constexpr,
    W_STAGES: gl.constexpr, X_STAGES: gl.constexpr,
):  # fmt: skip
    """Sum one part of K for one tile: the first programs for f_a and g_a, the next for q, k, v, the last for beta."""
    ROWS: gl.constexpr = w_in.block_type.shape[0]
    BLOCK_K: gl.constexpr = w_in.block_type.shape[1]
    BLOCK_M: gl.constexpr = x.block_type.shape[0]
    SIZE: gl.constexpr = ROWS * BLOCK_M
    WIDTH: gl.constexpr = 3 * D + 2 * R
    LOW: gl.constexpr = 2 * R // ROWS * SPLIT_LOW
    is_low = pid < LOW
    parts = gl.where(is_low, SPLIT_LOW, SPLIT_WIDE)
    index = gl.where(is_low, pid, pid - LOW)
    tile = index // parts
    part = index % parts
    row = gl.where(is_low, 3 * D + tile * ROWS, gl.where(tile < 3 * D // ROWS, tile * ROWS, WIDTH))
    steps = gl.where(is_low, STEPS // SPLIT_LOW, STEPS // SPLIT_WIDE)
    # Prefetch the tokens into L2 before the wait. The programs of q, k, v and beta do this, because no program waits
    # for them.
    SPAN: gl.constexpr = STEPS // SPLIT_WIDE * BLOCK_K
    prefetch_tokens(x_plain, gl.where(is_low, M, tile), 3 * D // ROWS, part * SPAN, M, STEPS * BLOCK_K, SPAN)
    total = stream(w_in, x, row, part * steps * BLOCK_K, steps, W_STAGES, X_STAGES)
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, total.type.layout))
    tokens = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, total.type.layout))
    mail += pid * SIZE + rows[:, None] * BLOCK_M + tokens[None, :]
    if is_low:
        post_tile(mail, total)
    else:
        if part < SPLIT_WIDE - 1:
            post_tile(mail, total)
        else:
            if SPLIT_WIDE > 1:
                # Added in the order of the parts, so that the same input gives the same bits.
                mail -= (SPLIT_WIDE - 1) * SIZE
                total += read_tiles(mail, SPLIT_WIDE - 1, SIZE)
                empty_tiles(mail, SPLIT_WIDE - 1, SIZE)
            result = total.to(wide.dtype.element_ty)
            token_ok = tokens < M
            if row >= WIDTH:
                gl.store(beta + tokens[None, :] * H + rows[:, None], result, token_ok[None, :] & (rows < H)[:, None])
            else:
                gl.store(wide + tokens[None, :] * WIDTH + row + rows[:, None], result, token_ok[None, :])


@gluon.jit
def _short(
    pid, w_fg, x, fg, mail, counters, M, D: gl.constexpr, R: gl.constexpr, SPLIT_LOW: gl.constexpr
):  # fmt: skip
    """Compute a tile of f from f_a or, in the second half of the programs, of g from g_a."""
    ROWS: gl.constexpr = w_fg.block_type.shape[0]
    BLOCK_M: gl.constexpr = x.block_type.shape[0]
    SIZE: gl.constexpr = ROWS * BLOCK_M
    weight = gl.allocate_shared_memory(w_fg.dtype, [1, ROWS, R], w_fg.layout)
    full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(full.index(0), count=1)
    fence_async_shared()
    fetch(w_fg, pid * ROWS, 0, weight, full, 0, True)
    gdc_wait()
    half = pid * ROWS // D
    LANES: gl.constexpr = BLOCK_M // 4
    lanes: gl.constexpr = gl.BlockedLayout([1, 4], [32 // LANES, LANES], [gl.num_warps(), 1], [1, 0])
    rank = gl.arange(0, R, layout=gl.SliceLayout(1, lanes))
    tokens = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, lanes))
    first = mail + half * (R // ROWS * SPLIT_LOW * SIZE)
    tile = half * (R // ROWS) + rank // ROWS
    mail += (tile * (SPLIT_LOW * SIZE) + rank % ROWS * BLOCK_M)[:, None] + tokens[None, :]
    # Poll one element first: if every program of this role polled all of the half, the traffic would delay the others.
    witness = first + (R // ROWS * SPLIT_LOW * SIZE - 1)
    while gl.load(witness, volatile=True) == EMPTY:
        pass
    low = read_tiles(mail, SPLIT_LOW, SIZE)
    operand = gl.allocate_shared_memory(x.dtype, [BLOCK_M, R], x.layout)
    operand.store(gl.permute(low.to(x.dtype), (1, 0)))
    fence_async_shared()
    mbarrier.wait(full.index(0), 0)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, BLOCK_M, 16]
    )
    total = warpgroup_mma(weight.index(0), operand.permute((1, 0)), gl.zeros((ROWS, BLOCK_M), gl.float32, layout))
    rows = pid * ROWS - half * D + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, layout))
    target = fg + half * M * D + columns[None, :] * D + rows[:, None]
    gl.store(target, total.to(fg.dtype.element_ty), (columns < M)[None, :])
    # The last program of the half stores EMPTY, because every other program has then read the whole half. The count
    # need not wait for a program's stores, because the last program does not read them.
    barrier()
    if gl.atomic_add(counters + half, 1, sem="relaxed", scope="gpu") == D // ROWS - 1:
        empty_tiles(mail, SPLIT_LOW, SIZE)
        gl.store(counters + half, 0)
