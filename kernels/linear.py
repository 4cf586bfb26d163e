"""Linear layer of few rows: ``y = x @ weight.T (+ bias)`` where reading the weight is the whole cost.

A batch of 1 … 64 rows reads N·K weights once and does almost no arithmetic, yet library kernels need twice
the time that the bytes need. The variants here are ways of keeping every multiprocessor reading.
"""

# Triton's compiler gives kernel arguments their types: annotations on them would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# mypy: check-untyped-defs=False
from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels import linear_direct, linear_stream
from kernels.arguments import expect
from kernels.choices import Offer
from kernels.devices import capability, require_triton, sm_count
from kernels.scratch import KEPT, kept


class Tile(NamedTuple):
    """Tile of the output; ``swapped`` makes rows of the weight the M side of the tensor cores' product."""

    m: int
    n: int
    k: int
    swapped: bool
    num_warps: int
    num_stages: int


Stream = linear_stream.Stream

FLOATS = (torch.bfloat16, torch.float16, torch.float32)

TABLE = linear_stream.TABLE

#: Tile of "triton".
TILE = TABLE.choice("triton", Tile, "M K N", upto="M")
#: Tile of "split_k". Hopper's products take 64 rows on their M side: at few rows of x those are rows of the weight.
SPLIT = TABLE.maybe("split_k", Tile, "M K N", upto="M")
MAX_SPLIT = 16


class Vectors(NamedTuple):
    """Rows of the weight a program of "gemv", elements of K a step."""

    n: int
    k: int
    num_warps: int


#: Tile of "gemv", and whether its weights are loaded ahead of the wait. On an H200 that takes K 7168 N 576 from 4.3 to
#: 3.0 µs, but K 4096 N 2048 from 5.6 to 6.0: programs that fill the GPU early keep the kernel ahead from ending.
VECTORS = TABLE.maybe("gemv", Vectors, "M K N", upto="M")
AHEAD = TABLE.choice("gemv_ahead", bool, "M K N", upto="M")

#: Variant that ``linear`` calls.
BEST = TABLE.choice("best", str, "M K N", upto="M")

#: What serves sizes and GPUs that the best variant refuses: "gemv" up to this many rows, "split_k" beyond.
MOST_VECTORS = 2


def torch_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """``F.linear``, or the cuBLAS call behind it where there is a buffer to write into."""
    if out is None:
        return torch.nn.functional.linear(x, weight, bias)
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)


def compiled(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.compile(F.linear)``, compiled at the first call with a shape (seconds)."""
    return _compiled(x, "default")(x, weight, bias)


def max_autotuned(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.compile(mode="max-autotune-no-cudagraphs")``: Inductor times its own kernels against cuBLAS.

    Tuned anew in every process, so its choice (and its speed) may differ from run to run.
    """
    return _compiled(x, "max-autotune-no-cudagraphs")(x, weight, bias)


def tgv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """FlashInfer's TGV GEMM for small batches on Blackwell (``flashinfer.gemm.tgv_gemm_sm100``)."""
    return _tgv(x, weight, bias, out, pdl=False)


def tgv_pdl(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """``tgv`` with programmatic dependent launch: its prologue overlaps the kernel before it."""
    return _tgv(x, weight, bias, out, pdl=True)


def tile(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """One output tile a program, the whole of K in one loop.

    At few rows there are too few tiles to keep the memory busy: the reason for ``split_k``.
    """
    require_triton(x, "triton")
    out = _checked(x, weight, bias, out)
    tile = TILE(x.device, *x.shape, len(weight))
    return _run_product(tile, x, weight, bias, out, most_parts=1)


def split_k(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Tile | None = None
) -> Tensor:
    """Several programs share an output tile, each a part of K; the last to finish adds their sums, in order.

    Calls on one device must not overlap: they share the counters that tell which program is the last. Calls
    on one stream, captured in graphs or not, do not.

    Raises:
        NotImplementedError: more rows than the table has tiles for.
    """
    return _split_k(x, weight, bias, out, config, pdl=False)


def split_k_pdl(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Tile | None = None
) -> Tensor:
    """``split_k`` with programmatic dependent launch: it is placed while the kernel before it still runs."""
    _require_pdl(x)
    return _split_k(x, weight, bias, out, config, pdl=True)


def gemv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Vectors | None = None
) -> Tensor:
    """One to four rows without tensor cores: a program reads a few rows of the weight, whole, straight to registers.

    Raises:
        NotImplementedError: more than four rows.
    """
    return _gemv(x, weight, bias, out, config, pdl=False)


def gemv_pdl(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Vectors | None = None
) -> Tensor:
    """``gemv`` with programmatic dependent launch, its weights loaded while the kernels before it still run.

    So ``weight`` must not be written by a kernel that may still be running when this one starts: by one that ends
    in an ordinary way it may, by one that itself launches its dependents early it may not. Weights of inference
    are constants, which is what this is for. ``x`` and ``bias`` may come from the kernel before.
    """
    _require_pdl(x)
    return _gemv(x, weight, bias, out, config, pdl=True)


def stream(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Stream | None = None
) -> Tensor:
    """``split_k`` by TMA and ``wgmma``, its first weights loaded while the kernels before it still run.

    ``weight`` must be there in time: see ``gemv_pdl``.

    Raises:
        NotImplementedError: more rows than the table has tiles for, no Hopper GPU, 32-bit elements,
            or rows of x and weight that do not begin at multiples of 16 bytes.
    """
    out = _checked(x, weight, bias, out)
    _require_hopper("stream", x, weight)
    cut = config or linear_stream.STREAM(x.device, *x.shape, len(weight))
    if cut is None:
        raise NotImplementedError(f"stream has no tile for {len(x)} rows: more fill the GPU without")
    parts = linear_stream.parts_of(cut, x.shape[1], weight.shape[0], x.device)
    linear_stream.launch(x, weight, bias, out, cut, parts)
    return out


def direct(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Whole rows of the weight a program, in registers before the kernel ahead has ended.

    ``weight`` must be there in time: see ``gemv_pdl``.

    Raises:
        NotImplementedError: more than 8 rows, K beyond 4096, no Hopper GPU, 32-bit elements, or rows of x and weight
            that do not begin at multiples of 16 bytes.
    """
    out = _checked(x, weight, bias, out)
    _require_hopper("direct", x, weight)
    if len(x) > linear_direct.TOKENS or x.shape[1] > linear_direct.MOST_K:
        most = f"{linear_direct.TOKENS} rows of up to {linear_direct.MOST_K} elements"
        raise NotImplementedError(f"direct is for up to {most}, got {list(x.shape)}")
    linear_direct.launch(x, weight, bias, out)
    return out


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: str | None = None
) -> Tensor:
    """``x @ weight.T + bias`` by the variant that is fastest at this shape.

    Args:
        x: ``[M, K]``, contiguous; bfloat16, float16 or float32.
        weight: ``[N, K]``, contiguous, dtype and device of ``x``.
        bias: ``[N]`` or None.
        out: ``[M, N]`` to write into; allocated when None.
        config: "gemv", "split_k", "direct", "stream" or "torch"; by default what the GPU's table has for the shape.

    Returns:
        ``[M, N]`` in the dtype of ``x``, accumulated in float32.

    Raises:
        ValueError: names the argument of a wrong shape, dtype, device or layout.
    """
    out = _checked(x, weight, bias, out)
    if x.dtype == torch.float32 or x.device.type == "cpu":
        return torch_linear(x, weight, bias, out=out)
    name = config or BEST(x.device, *x.shape, len(weight))
    if name in ("direct", "stream"):
        try:
            return (direct if name == "direct" else stream)(x, weight, bias, out=out)
        except NotImplementedError:
            if config:
                raise
            name = "gemv" if len(x) <= MOST_VECTORS else "split_k"
    if name == "torch":
        return torch_linear(x, weight, bias, out=out)
    variant = _gemv if name == "gemv" else _split_k
    return variant(x, weight, bias, out, pdl=capability(x.device) >= (9, 0))


def _checked(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None) -> Tensor:
    """The output to write into, once every argument is known to fit."""
    expect(x, "x", shape=(None, None), dtype=FLOATS, contiguous=True)
    expect(weight, "weight", shape=(None, x.shape[1]), dtype=x.dtype, device=x.device, contiguous=True)
    if bias is not None:
        expect(bias, "bias", shape=(weight.shape[0],), dtype=x.dtype, device=x.device, contiguous=True)
    if out is None:
        return x.new_empty(x.shape[0], weight.shape[0])
    expect(out, "out", shape=(x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device, contiguous=True)
    return out


def _hopper_reads(x: Tensor, weight: Tensor) -> bool:
    """Whether this is a Hopper GPU that can read both 16 bytes at a time, as its tensor memory accelerator does."""
    aligned = x.element_size() == 2 and (x.shape[1] * 2 | x.data_ptr() | weight.data_ptr()) % 16 == 0
    return aligned and capability(x.device)[0] == 9


def _require_hopper(variant: str, x: Tensor, weight: Tensor) -> None:
    if not _hopper_reads(x, weight):
        raise NotImplementedError(
            f"{variant} needs a Hopper GPU (compute capability 9.0), 16-bit elements and rows at multiples of 16 "
            f"bytes, got {x.dtype} and K={x.shape[1]} on {x.device}"
        )


def _compiled(x: Tensor, mode: str) -> Callable[..., Tensor]:
    if x.device.type != "cuda":
        raise NotImplementedError(f"torch.compile is measured on CUDA tensors only, got a {x.device.type} tensor")
    return _compile(mode)


@functools.cache
def _compile(mode: str) -> Callable[..., Tensor]:
    # One kernel a shape, as the source of the workload measured it. Dynamo keeps eight shapes.
    compiled_linear: Callable[..., Tensor] = torch.compile(torch.nn.functional.linear, mode=mode, dynamic=False)
    return compiled_linear


def _tgv(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None, *, pdl: bool) -> Tensor:
    if capability(x.device)[0] != 10:
        raise NotImplementedError("FlashInfer's TGV GEMM needs a Blackwell GPU (compute capability 10.x)")
    if bias is None:
        raise NotImplementedError("FlashInfer's TGV GEMM always adds a bias; PREPARE makes one of zeros")
    try:
        flashinfer = importlib.import_module("flashinfer.gemm")
    except ImportError as error:
        raise NotImplementedError(f"FlashInfer is not installed ({error}); pip install flashinfer-python") from error
    product: Tensor = flashinfer.tgv_gemm_sm100(x, weight.t(), bias, pdl=pdl, out=_checked(x, weight, bias, out))
    return product


def zero_bias(weight: Tensor, bias: Tensor | None = None) -> dict[str, Any]:
    """The bias that TGV insists on: ``bias`` itself, or zeros ``[N]``."""
    return {"bias": weight.new_zeros(weight.shape[0]) if bias is None else bias}


def _require_pdl(x: Tensor) -> None:
    if capability(x.device) < (9, 0):
        raise NotImplementedError("programmatic dependent launch needs a Hopper GPU or newer (compute capability 9.0)")


def _split_k(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None, config: Tile | None = None, *, pdl: bool
) -> Tensor:
    require_triton(x, "split_k")
    out = _checked(x, weight, bias, out)
    tile = config or SPLIT(x.device, *x.shape, len(weight))
    if tile is None:
        raise NotImplementedError(f"split_k has no tile for {len(x)} rows: more fill the GPU without")
    return _run_product(tile, x, weight, bias, out, most_parts=MAX_SPLIT, pdl=pdl)


def _gemv(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None, config: Vectors | None = None, *, pdl: bool
) -> Tensor:
    require_triton(x, "gemv")
    out = _checked(x, weight, bias, out)
    (M, K), N = x.shape, weight.shape[0]
    tile = config or VECTORS(x.device, M, K, N)
    if tile is None:
        raise NotImplementedError(f"gemv has no tile for {M} rows: it is for very few")
    block_k = min(tile.k, triton.next_power_of_2(K))
    _gemv_kernel[(triton.cdiv(N, tile.n),)](
        x, weight, bias, out, N, K,
        PDL=pdl, AHEAD=AHEAD(x.device, M, K, N), HAS_BIAS=bias is not None, EVEN_K=K % block_k == 0,
        M=M, ROWS=triton.next_power_of_2(M), BLOCK_N=tile.n, BLOCK_K=block_k, STEPS=triton.cdiv(K, block_k),
        num_warps=tile.num_warps, **_launch(pdl),
    )  # fmt: skip
    return out


def _run_product(
    tile: Tile, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, *, most_parts: int, pdl: bool = False
) -> Tensor:
    """Launch the tensor-core kernel, K in as many parts as all tiles can run at once, one program a multiprocessor."""
    (M, K), N = x.shape, weight.shape[0]
    tiles_m, tiles_n, steps = triton.cdiv(M, tile.m), triton.cdiv(N, tile.n), triton.cdiv(K, tile.k)
    most_parts = min(most_parts, sm_count(x.device) // (tiles_m * tiles_n))
    parts = max((n for n in range(1, most_parts + 1) if steps % n == 0), default=1)
    partials = counters = None
    if parts > 1:
        partials = x.new_empty(tiles_m * tiles_n * parts * tile.m * tile.n, dtype=torch.float32)
        counters = _counters(x.device)
    _product_kernel[(tiles_n, parts, tiles_m)](
        x, weight, bias, out, partials, counters, M, N, K,
        PDL=pdl, HAS_BIAS=bias is not None, EVEN_K=K % tile.k == 0, SWAPPED=tile.swapped,
        PARTS=parts, STEPS=steps // parts, BLOCK_M=tile.m, BLOCK_N=tile.n, BLOCK_K=tile.k,
        num_warps=tile.num_warps, num_stages=tile.num_stages, **_launch(pdl),
    )  # fmt: skip
    return out


def _launch(pdl: bool) -> dict[str, bool]:
    # Left out where it is off: targets other than Hopper and Blackwell know no such option.
    return {"launch_pdl": True} if pdl else {}


@kept
def _counters(device: torch.device) -> Tensor:
    """A counter for every tile that K is split for, zero before and after every launch."""
    return torch.zeros(sm_count(device), dtype=torch.int32, device=device)


@triton.jit
def _product_kernel(
    x, weight, bias, out, partials, counters, M, N, K,
    PDL: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr, SWAPPED: tl.constexpr, PARTS: tl.constexpr,
    STEPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    part = tl.program_id(1)
    m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = part * (STEPS * BLOCK_K) + tl.arange(0, BLOCK_K)
    # Rows of the weight beyond the edge read row 0 again instead of being masked: they are never stored.
    w_row = weight + tl.where(n < N, n, 0).to(tl.int64) * K
    x_row = x + m.to(tl.int64) * K
    ROWS: tl.constexpr = BLOCK_N if SWAPPED else BLOCK_M
    COLUMNS: tl.constexpr = BLOCK_M if SWAPPED else BLOCK_N
    if PDL:
        # No memory is touched before this: the kernel before may still be writing what is read here.
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
        _store(acc, bias, out, m, n, M, N, HAS_BIAS)
    else:
        within = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        partials += tile * (PARTS * BLOCK_M * BLOCK_N)
        tl.store(partials + part * (BLOCK_M * BLOCK_N) + within, acc)
        # One thread counts for all of them: their stores must come before its release.
        tl.debug_barrier()
        if tl.atomic_add(counters + tile, 1, sem="acq_rel") == PARTS - 1:
            # In order, whoever is last: the same input gives the same bits. From L2, where the others wrote.
            acc = tl.load(partials + within, cache_modifier=".cg")
            for other in tl.static_range(1, PARTS):
                acc += tl.load(partials + other * (BLOCK_M * BLOCK_N) + within, cache_modifier=".cg")
            _store(acc, bias, out, m, n, M, N, HAS_BIAS)
            tl.store(counters + tile, 0)


@triton.jit
def _store(acc, bias, out, m, n, M, N, HAS_BIAS: tl.constexpr):
    if HAS_BIAS:
        acc += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(out + m.to(tl.int64)[:, None] * N + n[None, :], acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _and(tiles, tile):
    """A longer tuple. Triton knows no unpacking, and a type checker no tuple that grows."""
    return tiles + (tile,)  # noqa: RUF005


@triton.jit
def _gemv_kernel(
    x, weight, bias, out, N, K, PDL: tl.constexpr, AHEAD: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr,
    M: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    m = tl.arange(0, ROWS)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    w_at = weight + tl.where(n < N, n, 0).to(tl.int64)[None, :, None] * K + k[None, None, :]
    x_at = x + tl.where(m < M, m, 0)[:, None, None] * K + k[None, None, :]
    if PDL and not AHEAD:
        gdc_wait()
    # All of the program's weights; with AHEAD before the wait: the kernel ahead does not write them (see ``gemv_pdl``).
    w_tiles = ()
    for step in tl.static_range(STEPS):
        if EVEN_K:
            w_tiles = _and(w_tiles, tl.load(w_at + step * BLOCK_K))
        else:
            inside = (k < K - step * BLOCK_K)[None, None, :]
            w_tiles = _and(w_tiles, tl.load(w_at + step * BLOCK_K, mask=inside, other=0.0))
    if PDL and AHEAD:
        gdc_wait()
    acc = tl.zeros((ROWS, BLOCK_N, BLOCK_K), dtype=tl.float32)
    for step in tl.static_range(STEPS):
        if EVEN_K:
            x_tile = tl.load(x_at + step * BLOCK_K)
        else:
            x_tile = tl.load(x_at + step * BLOCK_K, mask=(k < K - step * BLOCK_K)[None, None, :], other=0.0)
        acc += w_tiles[step].to(tl.float32) * x_tile.to(tl.float32)
    _store(tl.sum(acc, axis=2), bias, out, m, n, M, N, HAS_BIAS)


VARIANTS = {
    "torch": torch_linear,
    "compile": compiled,
    "max_autotune": max_autotuned,
    "tgv": tgv,
    "tgv_pdl": tgv_pdl,
    "triton": tile,
    "split_k": split_k,
    "split_k_pdl": split_k_pdl,
    "gemv": gemv,
    "gemv_pdl": gemv_pdl,
    "stream": stream,
    "direct": direct,
    "best": linear,
}
PREPARE = {"tgv": zero_bias, "tgv_pdl": zero_bias}

SCRATCH = KEPT


def _offer(choice: str, configs: Sequence[Any], M: int, K: int, N: int) -> Offer:
    return Offer(choice, {"M": M, "K": K, "N": N}, configs)


def _tiles_at(M: int, K: int, N: int) -> Offer:
    """Programs of one wave: 16 to 128 rows of the weight, K steps of 64 to 256."""
    if M > 64:
        return _offer("split_k", [Tile(128, n, 128, False, 8, s) for n in (32, 64) for s in (4, 5)], M, K, N)
    m = max(16, triton.next_power_of_2(M))
    shapes = [(n, k, stages) for n in (32, 64) for k, stages in ((64, 8), (128, 5), (128, 6), (256, 3))]
    return _offer("split_k", [Tile(m, n, k, n == 64, 4, stages) for n, k, stages in shapes], M, K, N)


def _vectors_at(M: int, K: int, N: int) -> Offer:
    tiles = [Vectors(n, k, warps) for n in (2, 4) for k in (2048, 4096) for warps in (8, 16)]
    return _offer("gemv", tiles if M <= 4 else [], M, K, N)


def _streams_at(M: int, K: int, N: int) -> Offer:
    m = max(8, triton.next_power_of_2(M))
    rings = ((5, 4), (5, 8), (6, 8), (8, 5)) if m <= 64 else ()
    return _offer("stream", [Stream(m, 64, 128, w, x, 1, 4) for w, x in rings], M, K, N)


def _variants_at(M: int, K: int, N: int) -> Offer:
    few = [name for name, most in (("gemv", 4), ("direct", 8), ("stream", 128), ("split_k", 256)) if most >= M]
    return _offer("best", [*few, "torch"], M, K, N)


#: What ``lockstep tune`` may try: variant → what is open at a case.
CANDIDATES = {"split_k_pdl": _tiles_at, "gemv_pdl": _vectors_at, "stream": _streams_at, "best": _variants_at}
