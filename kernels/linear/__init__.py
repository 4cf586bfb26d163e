"""Linear layer of few rows: ``y = x @ weight.T (+ bias)``. Reading the weight decides its time.

A batch of 1 … 64 rows reads N·K weights once and does almost no arithmetic. Library kernels take about twice as long as
the bytes need (docs/evidence/kernels/linear.md). The variants differ in how they keep every multiprocessor reading.
"""

from __future__ import annotations

from contextlib import suppress

import torch
import triton
from torch import Tensor

from kernels.call_plans import planned
from kernels.common.devices import capability, require_triton
from kernels.common.tables import SearchSpace
from kernels.common.workspace import BUFFERS
from kernels.linear import direct_kernel as linear_direct
from kernels.linear import library
from kernels.linear import share_kernel as linear_share
from kernels.linear import spread_kernel as linear_spread
from kernels.linear import stream_kernel as linear_stream
from kernels.linear import turns_kernel as linear_turns
from kernels.linear.arguments import checked
from kernels.linear.gemv_kernel import VECTORS, Vectors, run_gemv, vectors_at
from kernels.linear.library import compiled, max_autotuned, tgv, tgv_pdl, torch_linear, zero_bias
from kernels.linear.product_kernel import SPLIT, Tile, run_product, tiles_at
from kernels.linear.table import TABLE, search_space

Stream = linear_stream.Stream
Share = linear_share.Share
Spread = linear_spread.Spread
Turns = linear_turns.Turns

#: Variant that ``linear`` calls.
BEST = TABLE.choice("best", str, "M K N", upto="M")

#: Maximum rows for which "gemv" is the fallback if the best variant refuses. With more rows the fallback is "split_k".
MOST_VECTORS = 2

#: Maximum rows for which ``lockstep tune`` tries "stream".
MOST_STREAMED = 64

cublaslt = planned(library.cublaslt)


@planned
def split_k(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Tile | None = None
) -> Tensor:
    """Compute the product with several programs per output tile, each with a part of K. The last program adds the sums
    in order.

    Calls on one device must not overlap: they share the counters that find the last program. Calls on one stream do not
    overlap, captured in graphs or not.

    Raises:
        NotImplementedError: x has more rows than the table has tiles for.
    """
    return _split_k(x, weight, bias, out, config, pdl=False)


@planned
def split_k_pdl(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Tile | None = None
) -> Tensor:
    """Compute ``split_k`` with programmatic dependent launch: the launch starts while the preceding kernel still
    runs.
    """
    _require_pdl(x)
    return _split_k(x, weight, bias, out, config, pdl=True)


@planned
def gemv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Vectors | None = None
) -> Tensor:
    """Multiply one to four rows without tensor cores: a program reads a few whole rows of the weight directly to
    registers.

    Raises:
        NotImplementedError: x has more than four rows.
    """
    return _gemv(x, weight, bias, out, config, pdl=False)


@planned
def gemv_pdl(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Vectors | None = None
) -> Tensor:
    """Compute ``gemv`` with programmatic dependent launch: the weight is loaded while preceding kernels still run.

    A kernel that may still run must not write ``weight``. An example is a preceding kernel that launches its dependents
    early. In inference weights are constants, so this holds. The preceding kernel may write ``x`` and ``bias``.
    """
    _require_pdl(x)
    return _gemv(x, weight, bias, out, config, pdl=True)


@planned
def stream(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Stream | None = None
) -> Tensor:
    """Compute ``split_k`` with TMA and ``wgmma``: the first weights are loaded while preceding kernels still run.

    ``gemv_pdl`` states which kernels may write ``weight``.

    Raises:
        NotImplementedError: x has more rows than the table has tiles for, or 32-bit elements; the GPU is not a Hopper;
            or rows of x or weight do not begin at multiples of 16 bytes.
    """
    out = checked(x, weight, bias, out)
    _require_hopper("stream", x, weight)
    config = config or linear_stream.STREAM(x.device, *x.shape, len(weight))
    if config is None:
        raise NotImplementedError(
            f"variant 'stream': no tuned configuration for {len(x)} rows, only for fewer; call linear"
        )
    parts = linear_stream.parts_of(config, x.shape[1], weight.shape[0], x.device)
    linear_stream.launch(x, weight, bias, out, config, parts)
    return out


@planned
def share(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Share | None = None
) -> Tensor:
    """Compute ``stream`` with a shared reduction: each program adds the partial sums of some of a tile's tokens.

    ``gemv_pdl`` states which kernels may write ``weight``. Calls on one device must not overlap: see ``split_k``.

    Raises:
        NotImplementedError: the table has no tile for the shape, ``stream`` refuses the arguments, or the shape needs
            more programs than the GPU has multiprocessors.
    """
    out = checked(x, weight, bias, out)
    _require_hopper("share", x, weight)
    config = config or linear_share.SHARE(x.device, *x.shape, len(weight))
    if config is None:
        raise NotImplementedError(_untuned("share", x, weight))
    linear_share.launch(x, weight, bias, out, config)
    return out


@planned
def spread(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Spread | None = None
) -> Tensor:
    """Compute ``share`` with Triton's plain loop instead of TMA. Products start sooner behind an ordinary kernel.

    The preceding kernel may write every argument. Calls on one device must not overlap: see ``split_k``.

    Raises:
        NotImplementedError: the table has no tile for the shape, the elements have 32 bits, the GPU is older than
            Hopper, or the shape needs more programs than the GPU has multiprocessors.
    """
    _require_pdl(x)
    out = checked(x, weight, bias, out)
    config = config or linear_spread.SPREAD(x.device, *x.shape, len(weight))
    if config is None or x.element_size() != 2:
        raise NotImplementedError(_untuned("spread", x, weight))
    linear_spread.launch(x, weight, bias, out, config)
    return out


@planned
def turns(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: Turns | None = None
) -> Tensor:
    """Compute ``share`` with tokens and weights requested in turn, for parts of K that fit into shared memory.

    ``gemv_pdl`` states which kernels may write ``weight``. Calls on one device must not overlap: see ``split_k``.

    Raises:
        NotImplementedError: under the conditions that ``share`` states, or a part does not fit into shared memory.
    """
    out = checked(x, weight, bias, out)
    _require_hopper("turns", x, weight)
    config = config or linear_turns.TURNS(x.device, *x.shape, len(weight))
    if config is None:
        raise NotImplementedError(_untuned("turns", x, weight))
    linear_turns.launch(x, weight, bias, out, config)
    return out


@planned
def direct(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Compute the product. Each program loads whole weight rows to registers before the preceding kernel has ended.

    ``gemv_pdl`` states which kernels may write ``weight``.

    Raises:
        NotImplementedError: x has more than 8 rows, K beyond 4096 or 32-bit elements; the GPU is not a Hopper; or rows
            of x or weight do not begin at multiples of 16 bytes.
    """
    out = checked(x, weight, bias, out)
    _require_hopper("direct", x, weight)
    if len(x) > linear_direct.TOKENS or x.shape[1] > linear_direct.MOST_K:
        limit = f"{linear_direct.TOKENS} rows of up to {linear_direct.MOST_K} elements"
        raise NotImplementedError(f"direct is for up to {limit}, got {list(x.shape)}")
    linear_direct.launch(x, weight, bias, out)
    return out


@planned
def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, config: str | None = None
) -> Tensor:
    """Compute ``x @ weight.T + bias`` with the variant that is fastest at this shape.

    Args:
        x: ``[M, K]``, contiguous; bfloat16, float16 or float32.
        weight: ``[N, K]``, contiguous, dtype and device of ``x``.
        bias: ``[N]`` or None.
        out: ``[M, N]`` to write into; allocated when None.
        config: "gemv", "split_k", "direct", "stream", "share", "spread", "turns" or "torch"; by default the entry of
            the GPU's table for the shape.

    Returns:
        ``[M, N]`` in the dtype of ``x``, accumulated in float32.

    Raises:
        ValueError: an argument has a wrong shape, dtype, device or layout; the message names it.
    """
    out = checked(x, weight, bias, out)
    needs_library = x.dtype == torch.float32 or x.device.type == "cpu" or not len(x)
    name = "torch" if needs_library else config or BEST(x.device, *x.shape, len(weight))
    if name in ("direct", "stream", "share", "spread", "turns"):
        try:
            return {"direct": direct, "stream": stream, "share": share, "spread": spread, "turns": turns}[name](
                x, weight, bias, out=out
            )
        except NotImplementedError:
            if config:
                raise
            name = "gemv" if len(x) <= MOST_VECTORS else "split_k"
    if name == "cublaslt" and library.tuned_algorithm(x, weight):
        with suppress(NotImplementedError):
            return cublaslt(x, weight, bias, out=out)
    if name in ("torch", "cublaslt"):
        return _cublas(x, weight, bias, out)
    variant = _gemv if name == "gemv" else _split_k
    return variant(x, weight, bias, out, pdl=capability(x.device) >= (9, 0))


def _cublas(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Compute ``torch_linear`` as one product into ``out``."""
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)


def _hopper_reads(x: Tensor, weight: Tensor) -> bool:
    """Return whether this is a Hopper GPU and TMA can read both tensors (rows begin at multiples of 16 bytes)."""
    aligned = x.element_size() == 2 and (x.shape[1] * 2 | x.data_ptr() | weight.data_ptr()) % 16 == 0
    return aligned and capability(x.device)[0] == 9


def _require_hopper(variant: str, x: Tensor, weight: Tensor) -> None:
    if not _hopper_reads(x, weight):
        raise NotImplementedError(
            f"{variant} needs a Hopper GPU (compute capability 9.0), 16-bit elements and rows at multiples of 16 "
            f"bytes, got {x.dtype} and K={x.shape[1]} on {x.device}"
        )


def _require_pdl(x: Tensor) -> None:
    if capability(x.device) < (9, 0):
        raise NotImplementedError("programmatic dependent launch needs a Hopper GPU or newer (compute capability 9.0)")


def _split_k(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None, config: Tile | None = None, *, pdl: bool
) -> Tensor:
    require_triton(x, "split_k")
    out = checked(x, weight, bias, out)
    tile = config or SPLIT(x.device, *x.shape, len(weight))
    if tile is None:
        raise NotImplementedError(
            f"variant 'split_k': no tuned configuration for {len(x)} rows; so many fill the GPU without a split of K"
        )
    run_product(tile, x, weight, bias, out, pdl=pdl)
    return out


def _untuned(variant: str, x: Tensor, weight: Tensor) -> str:
    """Return the message for a shape that has no row in the variant's table."""
    shape = f"{len(x)} rows at K={x.shape[1]}, N={len(weight)}, {x.dtype}"
    return f"variant '{variant}': no tuned configuration for {shape}; call linear"


def _gemv(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None, config: Vectors | None = None, *, pdl: bool
) -> Tensor:
    require_triton(x, "gemv")
    out = checked(x, weight, bias, out)
    tile = config or VECTORS(x.device, *x.shape, len(weight))
    if tile is None:
        raise NotImplementedError(
            f"variant 'gemv': no tuned configuration for {len(x)} rows, only for one to a few; call linear"
        )
    run_gemv(tile, x, weight, bias, out, pdl=pdl)
    return out


VARIANTS = {
    "torch": torch_linear,
    "cublaslt": cublaslt,
    "compile": compiled,
    "max_autotune": max_autotuned,
    "tgv": tgv,
    "tgv_pdl": tgv_pdl,
    "split_k": split_k,
    "split_k_pdl": split_k_pdl,
    "gemv": gemv,
    "gemv_pdl": gemv_pdl,
    "stream": stream,
    "share": share,
    "spread": spread,
    "turns": turns,
    "direct": direct,
    "best": linear,
}
PREPARE = {"tgv": zero_bias, "tgv_pdl": zero_bias}

SCRATCH = BUFFERS


def _streams_at(M: int, K: int, N: int) -> SearchSpace:
    m = max(8, triton.next_power_of_2(M))
    rings = ((128, 5, 4), (128, 5, 8), (128, 6, 8), (128, 8, 5), (256, 4, 4)) if m <= MOST_STREAMED else ()
    return search_space("stream", [Stream(m, 64, k, w, x, 1, 4) for k, w, x in rings if k < 256 or m < 64], M, K, N)


def _variants_at(M: int, K: int, N: int) -> SearchSpace:
    spread_rows = linear_spread.MOST_ROWS
    rows = {"gemv": 4, "direct": 8, "stream": MOST_STREAMED, "share": linear_share.MOST_ROWS, "spread": spread_rows}
    rows |= {"turns": linear_turns.MOST_ROWS, "split_k": 256}
    fitting = [name for name, limit in rows.items() if limit >= M]
    return search_space("best", [*fitting, "torch", "cublaslt"], M, K, N)


#: Search spaces of ``lockstep tune``: variant → function of a case.
CANDIDATES = {
    "cublaslt": library.algorithms_at,
    "split_k_pdl": tiles_at,
    "gemv_pdl": vectors_at,
    "stream": _streams_at,
    "share": linear_share.shares_at,
    "spread": linear_spread.spreads_at,
    "turns": linear_turns.turns_at,
    "best": _variants_at,
}
