"""Half-precision GEMM as a ladder: each rung adds one idea on the way from a naive tile to cuBLAS.

``out = alpha · A @ B + beta · C`` with float16 tensors, row-major, accumulated in float32. The rungs follow
the ladder of minfer's kernels (naive, vectorised and unrolled, pipelined, …), written for Hopper.
"""

# Triton's compiler gives kernel arguments their types: annotations on them would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.language.nvidia.hopper import tma as gluon_tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.arguments import expect
from kernels.choices import Offer, Table
from kernels.devices import capability, require_triton, sm_count

# Renamed in Triton 3.8.
_tma_load = getattr(gluon_tma, "async_load", None) or gluon_tma.async_copy_global_to_shared
_tma_store = getattr(gluon_tma, "async_store", None) or gluon_tma.async_copy_shared_to_global

FLOATS = (torch.float16, torch.bfloat16)


class Tile(NamedTuple):
    """Tile of the output and how it is computed. ``group`` tile rows share their B tiles in L2."""

    m: int
    n: int
    k: int
    group: int
    num_warps: int
    num_stages: int


#: Largest first. Where no row of the table says otherwise a tile is used where the matrix has enough of it to fill
#: ``FULL`` of the multiprocessors.
TILES = (
    Tile(128, 256, 64, 8, 8, 4),
    Tile(128, 128, 64, 8, 8, 4),
    Tile(128, 64, 64, 8, 4, 5),
    Tile(64, 64, 64, 8, 4, 6),
    Tile(64, 32, 64, 8, 4, 6),
)
FULL = 0.75

TABLE = Table("hgemm")
#: Tile of "pipelined", "tma" and "gluon" at a shape.
TILE = TABLE.maybe("tile", Tile, "M N K")
#: Variant that ``hgemm`` calls; C is 1 where there is one, and elements are the output's.
BEST = TABLE.choice("best", str, "M N K C elements")


def torch_mm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0, out: Tensor | None = None
) -> Tensor:
    """cuBLAS. With ``c`` torch first copies it into ``out`` (a launch of its own), then accumulates there."""
    if c is None and alpha == 1:
        return torch.mm(a, b, out=out)
    addend = a.new_empty(()) if c is None else c
    return torch.addmm(addend, a, b, alpha=alpha, beta=0 if c is None else beta, out=out)


def naive(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0, out: Tensor | None = None
) -> Tensor:
    """First rung: a small tile, tiles in row order, each load waited for before the product."""
    return _run_pointers("naive", Tile(64, 64, 32, 1, 4, 1), a, b, c, alpha, beta, out)


def vectorized(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0, out: Tensor | None = None
) -> Tensor:
    """Second rung: a tile with four times the reuse, 16-byte loads without masks, two steps of K a loop turn."""
    return _run_pointers("vectorized", Tile(128, 128, 64, 1, 8, 1), a, b, c, alpha, beta, out, unroll=2)


def pipelined(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: Tile | None = None,
) -> Tensor:
    """Third rung: loads run several steps ahead of the products, tiles in an order that reuses L2, tile by size.

    From Hopper on with programmatic dependent launch: programs are placed while the kernel ahead drains.
    """
    pdl = a.device.type != "cpu" and capability(a.device) >= (9, 0)
    return _run_pointers("pipelined", config or _tile_for(a, b), a, b, c, alpha, beta, out, unroll=1, pdl=pdl)


def tma(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: Tile | None = None,
) -> Tensor:
    """Fourth rung: the tensor memory accelerator moves whole tiles; programs stay and take tile after tile.

    With programmatic dependent launch, as ``pipelined``.

    Raises:
        NotImplementedError: before Hopper, or rows that are no multiple of 16 bytes.
    """
    require_triton(a, "tma")
    out = _checked(a, b, c, beta, out)
    K, N = b.shape
    if a.device.type != "cpu" and capability(a.device) < (9, 0):
        raise NotImplementedError("tma needs a Hopper GPU or newer (compute capability 9.0)")
    if not _in_vectors(a, b):
        raise NotImplementedError(f"tma needs rows of a multiple of 16 bytes: K and N by 8, got K={K}, N={N}")
    _run_tma(config or _tile_for(a, b), a, b, c, alpha, beta, out)
    return out


def gluon_wgmma(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: Tile | None = None,
) -> Tensor:
    """Fifth rung: a warp of its own feeds a ring of tiles, two warp groups do nothing but multiply (Gluon, sm_90).

    Raises:
        NotImplementedError: no Hopper GPU (``wgmma`` exists nowhere else, and Gluon has no interpreter), or rows
            that are no multiple of 16 bytes, or a ``c``.
    """
    out = _checked(a, b, c, beta, out)
    (M, K), N = a.shape, b.shape[1]
    if c is not None:
        raise NotImplementedError("gluon has no epilogue that reads c")
    if capability(a.device)[0] != 9:
        raise NotImplementedError("gluon uses wgmma, which only Hopper GPUs have (compute capability 9.0)")
    if not _in_vectors(a, b):
        raise NotImplementedError(f"gluon needs rows of a multiple of 16 bytes: K and N by 8, got K={K}, N={N}")
    tile = config or _tile_for(a, b)
    programs = min(sm_count(a.device), triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n))
    dtype = gl.float16 if a.dtype == torch.float16 else gl.bfloat16
    shapes = {"a": (a, [tile.m, tile.k]), "b": (b, [tile.k, tile.n]), "out": (out, [tile.m, tile.n // 2])}
    descriptors = {
        name: GluonDescriptor.from_tensor(tensor, shape, gl.NVMMASharedLayout.get_default_for(shape, dtype))
        for name, (tensor, shape) in shapes.items()
    }
    _gluon_kernel[(programs,)](
        **descriptors, M=M, N=N, K=K, alpha=float(alpha), PROGRAMS=programs,
        BLOCK_M=tile.m, BLOCK_N=tile.n, BLOCK_K=tile.k, GROUP_M=tile.group, STAGES=tile.num_stages,
        num_warps=tile.num_warps,
    )  # fmt: skip
    return out


def hgemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
    config: str | None = None,
) -> Tensor:
    """``alpha · a @ b + beta · c`` by the variant that is fastest at this shape.

    Args:
        a: ``[M, K]``, contiguous; float16 (or bfloat16).
        b: ``[K, N]``, contiguous, dtype and device of ``a``.
        c: ``[M, N]``; needed where ``beta`` is not 0, else left out.
        alpha: scale of the product.
        beta: scale of ``c``.
        out: ``[M, N]`` to write into; allocated when None. It must not be ``c``.
        config: name of the variant; by default what the GPU's table has for the shape.

    Returns:
        ``[M, N]`` in the dtype of ``a``, accumulated and scaled in float32.

    Raises:
        ValueError: names the argument of a wrong shape, dtype, device or layout.
    """
    out = _checked(a, b, c, beta, out)
    if a.device.type == "cpu":
        return torch_mm(a, b, c, alpha=alpha, beta=beta, out=out)
    (M, K), N = a.shape, b.shape[1]
    name = config or BEST(a.device, M, N, K, c is not None, M * N)
    try:
        return VARIANTS[name](a, b, c, alpha=alpha, beta=beta, out=out)
    except NotImplementedError:
        if config:
            raise
        return torch_mm(a, b, c, alpha=alpha, beta=beta, out=out)


def _checked(a: Tensor, b: Tensor, c: Tensor | None, beta: float, out: Tensor | None) -> Tensor:
    """The output to write into, once every argument is known to fit."""
    expect(a, "a", shape=(None, None), dtype=FLOATS, contiguous=True)
    expect(b, "b", shape=(a.shape[1], None), dtype=a.dtype, device=a.device, contiguous=True)
    shape = (a.shape[0], b.shape[1])
    if (c is None) != (beta == 0):
        raise ValueError(f"c must be given exactly where beta is not 0; beta is {beta:g}")
    if c is not None:
        expect(c, "c", shape=shape, dtype=a.dtype, device=a.device, contiguous=True)
    if out is None:
        return a.new_empty(shape)
    expect(out, "out", shape=shape, dtype=a.dtype, device=a.device, contiguous=True)
    return out


def _in_vectors(a: Tensor, b: Tensor) -> bool:
    """Whether every row begins at a multiple of 16 bytes, as the tensor memory accelerator needs it."""
    return a.shape[1] % 8 == 0 and b.shape[1] % 8 == 0


def _tile_for(a: Tensor, b: Tensor) -> Tile:
    tuned = TILE(a.device, a.shape[0], b.shape[-1], a.shape[1])
    if tuned is not None:
        return tuned
    enough = FULL * sm_count(a.device)
    for tile in TILES:
        if triton.cdiv(a.shape[0], tile.m) * triton.cdiv(b.shape[-1], tile.n) >= enough:
            return tile
    return TILES[-1]


def _run_pointers(
    name: str,
    tile: Tile,
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    alpha: float,
    beta: float,
    out: Tensor | None,
    unroll: int = 0,
    pdl: bool = False,
) -> Tensor:
    """Launch the kernel of the rungs that compute addresses themselves; ``unroll`` also drops needless masks."""
    require_triton(a, name)
    out = _checked(a, b, c, beta, out)
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n),)
    even = unroll > 0 and M % tile.m == N % tile.n == K % tile.k == 0
    # Floats, or an integer alpha of 1 would be compiled in as a constant.
    _pointer_kernel[grid](
        a, b, c, out, M, N, K, float(alpha), float(beta), HAS_C=c is not None, EVEN=even, UNROLL=max(unroll, 1),
        PDL=pdl, BLOCK_M=tile.m, BLOCK_N=tile.n, BLOCK_K=tile.k, GROUP_M=tile.group,
        num_warps=tile.num_warps, num_stages=tile.num_stages, **_launch(pdl),
    )  # fmt: skip
    return out


def _run_tma(tile: Tile, a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    """Launch the kernel of ``tma``, one program a multiprocessor at most; every argument has been checked."""
    (M, K), N = a.shape, b.shape[1]
    tiles = triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n)
    programs = min(sm_count(a.device), tiles)
    half = [tile.m, tile.n // 2]
    pdl = a.device.type != "cpu"
    _tma_kernel[(programs,)](
        TensorDescriptor.from_tensor(a, [tile.m, tile.k]),
        TensorDescriptor.from_tensor(b, [tile.k, tile.n]),
        TensorDescriptor.from_tensor(out if c is None else c, half),
        TensorDescriptor.from_tensor(out, half),
        M, N, K, float(alpha), float(beta), HAS_C=c is not None, PDL=pdl, STAY=tiles > programs, PROGRAMS=programs,
        BLOCK_M=tile.m, BLOCK_N=tile.n, BLOCK_K=tile.k, GROUP_M=tile.group,
        # C's two halves pass through shared memory as well: one stage of loads makes room for them.
        num_warps=tile.num_warps, num_stages=tile.num_stages - (c is not None), **_launch(pdl),
    )  # fmt: skip


def _launch(pdl: bool) -> dict[str, bool]:
    # Left out where it is off: targets other than Hopper and Blackwell know no such option.
    return {"launch_pdl": True} if pdl else {}


@triton.jit
def _tile_of(index, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile; tiles go down columns of GROUP_M tile rows, so that neighbours share B."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = index // (GROUP_M * tiles_n)
    height = min(tiles_m - group * GROUP_M, GROUP_M)
    within = index % (GROUP_M * tiles_n)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def _pointer_kernel(
    a, b, c, out, M, N, K, alpha, beta, HAS_C: tl.constexpr, EVEN: tl.constexpr, UNROLL: tl.constexpr,
    PDL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    first_m, first_n = _tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    m_inside = m < M - first_m
    n_inside = n < N - first_n
    # 64 bits for the tile's corner only: offsets within a tile fit in 32 and cost half the registers.
    a += first_m.to(tl.int64) * K
    b += first_n
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if PDL:
        # No memory is touched before this: the kernel before may still be writing what is read here.
        gdc_wait()
    for start in tl.range(0, K, BLOCK_K, loop_unroll_factor=UNROLL):
        if EVEN:
            a_tile = tl.load(a + m[:, None] * K + k[None, :])
            b_tile = tl.load(b + k[:, None] * N + n[None, :])
        else:
            k_inside = k < K - start
            a_tile = tl.load(a + m[:, None] * K + k[None, :], mask=m_inside[:, None] & k_inside[None, :], other=0.0)
            b_tile = tl.load(b + k[:, None] * N + n[None, :], mask=k_inside[:, None] & n_inside[None, :], other=0.0)
        acc = tl.dot(a_tile, b_tile, acc)
        a += BLOCK_K
        b += BLOCK_K * N
    acc *= alpha
    inside = m_inside[:, None] & n_inside[None, :]
    corner = first_m.to(tl.int64) * N + first_n
    at = m[:, None] * N + n[None, :]
    if HAS_C:
        acc += beta * tl.load(c + corner + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + corner + at, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _tma_kernel(
    a, b, c, out, M, N, K, alpha, beta, HAS_C: tl.constexpr, PDL: tl.constexpr, STAY: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    if STAY:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        # Flattened into one loop, so that the loads of the next tile run during the stores of this one.
        for index in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
            _tma_tile(index, a, b, c, out, M, N, K, alpha, beta, HAS_C, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M)
    else:
        _tma_tile(
            tl.program_id(0), a, b, c, out, M, N, K, alpha, beta, HAS_C, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M
        )  # fmt: skip


@triton.jit
def _tma_tile(
    index, a, b, c, out, M, N, K, alpha, beta, HAS_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = _tile_of(index, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        acc = tl.dot(a.load([m, start]), b.load([start, n]), acc)
    # Stored in halves: the buffer that the store goes through leaves room for a fourth stage.
    halves = tl.permute(tl.reshape(acc * alpha, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
    left, right = tl.split(halves)
    middle = n + BLOCK_N // 2
    if HAS_C:
        left += beta * c.load([m, n]).to(tl.float32)
        right += beta * c.load([m, middle]).to(tl.float32)
    out.store([m, n], left.to(out.dtype))
    out.store([m, middle], right.to(out.dtype))


@gluon.jit
def _gluon_tile_of(index, M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    """First row and column of a tile; tiles go down columns of GROUP_M tile rows, so that neighbours share B."""
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    group = index // (GROUP_M * tiles_n)
    height = min(tiles_m - group * GROUP_M, GROUP_M)
    within = index % (GROUP_M * tiles_n)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@gluon.jit
def _gluon_load(
    a, b, a_ring, b_ring, full, free, M, N, K, PROGRAMS: gl.constexpr, GROUP_M: gl.constexpr
):  # fmt: skip
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[2]
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    step = 0
    for index in range(gl.program_id(0), tiles, PROGRAMS):
        m, n = _gluon_tile_of(index, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        for start in range(0, K, BLOCK_K):
            slot = step % STAGES
            # A fresh barrier counts as one whose last phase is over: the first round does not wait.
            mbarrier.wait(free.index(slot), (step // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(slot), a.block_type.nbytes + b.block_type.nbytes)
            _tma_load(a, [m, start], full.index(slot), a_ring.index(slot))
            _tma_load(b, [start, n], full.index(slot), b_ring.index(slot))
            step += 1


@gluon.jit
def _gluon_multiply(
    out, a_ring, b_ring, full, free, M, N, K, alpha, PROGRAMS: gl.constexpr, GROUP_M: gl.constexpr
):  # fmt: skip
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, BLOCK_N, 16]
    )
    stage = gl.allocate_shared_memory(out.dtype, out.block_type.shape, out.layout)
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    step = 0
    for index in range(gl.program_id(0), tiles, PROGRAMS):
        m, n = _gluon_tile_of(index, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
        for start in range(0, K, BLOCK_K):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), step // STAGES & 1)
            product = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=1, deps=[product])
            # One product stays in flight: the slot that is free now is the one before.
            mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), pred=start > 0)
            step += 1
        acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
        mbarrier.arrive(free.index((step + STAGES - 1) % STAGES))
        # In halves, as in _tma_kernel; the first store of a tile waits for the last of the tile before.
        left, right = gl.split(gl.permute(gl.reshape(acc * alpha, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
        gluon_tma.store_wait(0)
        stage.store(left.to(out.dtype))
        fence_async_shared()
        _tma_store(out, [m, n], stage)
        gluon_tma.store_wait(0)
        stage.store(right.to(out.dtype))
        fence_async_shared()
        _tma_store(out, [m, n + BLOCK_N // 2], stage)
    gluon_tma.store_wait(0)


@gluon.jit
def _gluon_kernel(
    a, b, out, M, N, K, alpha, PROGRAMS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, BLOCK_M, BLOCK_K], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES, BLOCK_K, BLOCK_N], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_gluon_multiply, (out, a_ring, b_ring, full, free, M, N, K, alpha, PROGRAMS, GROUP_M)),
            (_gluon_load, (a, b, a_ring, b_ring, full, free, M, N, K, PROGRAMS, GROUP_M)),
        ],
        [1],
        [40],
    )


VARIANTS = {
    "torch": torch_mm,
    "naive": naive,
    "vectorized": vectorized,
    "pipelined": pipelined,
    "tma": tma,
    "gluon": gluon_wgmma,
    "best": hgemm,
}


def _tiles_at(M: int, N: int, K: int) -> Offer:
    return Offer("tile", {"M": M, "N": N, "K": K}, TILES)


def _variants_at(M: int, N: int, K: int, beta: float = 0.0) -> Offer:
    return Offer("best", {"M": M, "N": N, "K": K, "C": beta != 0}, ("torch", "pipelined", "tma", "gluon"))


#: What ``lockstep tune`` may try: variant → what is open at a case.
CANDIDATES = {"tma": _tiles_at, "best": _variants_at}
