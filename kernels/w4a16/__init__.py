"""Products of small and large batches with int4 weights: ``y = x @ W`` with ``W = (codes − 8) · scales``.

x is float16 [M, K], W is [K, N] and y float16 [M, N]; products are accumulated in float32. Each scale is for a group of
K / groups rows of one column: groups of 128 rows, or one group (a scale per output channel). ``kernels.w4a16.int4``
describes how codes are packed; ``PREPARE`` makes each variant's packing offline.

For an argument with a wrong shape, dtype or device, a variant raises a ValueError that names the argument.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.call_plans import planned
from kernels.common.devices import interpreted, require_triton
from kernels.common.tables import SearchSpace
from kernels.common.workspace import BUFFERS
from kernels.w4a16.arguments import expect_planes, output
from kernels.w4a16.int4 import dequantise_planes, expect_quantised, has_hopper_ptx, has_wgmma, pack_planes
from kernels.w4a16.library import fp16, int4pack, prepare_fp16, prepare_int4pack
from kernels.w4a16.planes_kernel import LARGEST_PLANES_M, TILE, Tile, multiply_planes, tiles_at
from kernels.w4a16.ring_warp_specialized_kernel import RING, Ring, multiply_ring, rings_at
from kernels.w4a16.rivals import gemlite, humming, prepare_gemlite, prepare_humming
from kernels.w4a16.stream_kernel import multiply_stream
from kernels.w4a16.stream_tiles import STREAM, Stream, streams_at
from kernels.w4a16.table import SIZES, TABLE, search_space, sizes_of

#: Variant that ``w4a16`` calls.
BEST = TABLE.choice("best", str, SIZES, upto="M", derived="codes")


@planned
def dequant(x: Tensor, words: Tensor, scales32: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Dequantise into a scratch buffer, then call cuBLAS, as exllamav2 does at large M.

    Args:
        x: float16 [M, K].
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N].
        out: float16 [M, N] to write into.

    Raises:
        NotImplementedError: a group's number of rows is not a multiple of 128.
    """
    N = expect_planes(x, words, scales32)
    return torch.mm(x, dequantise_planes(words, scales32, x.shape[1]), out=output(x, N, out))


@planned
def planes(
    x: Tensor, words: Tensor, scales32: Tensor, *, out: Tensor | None = None, config: Tile | None = None
) -> Tensor:
    """Multiply with the weights as the tensor core's left operand, unpacked from shared memory to registers.

    Unpacking shuffles no data between threads. ``int4.pack_planes`` describes the layout,
    docs/evidence/kernels/w4a16.md the design.

    Args:
        x: float16 [M, K].
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N] (an asynchronous copy takes at least four bytes).
        out: float16 [M, N] to write into.
        config: the tile; by default the entry of the GPU's table for these sizes.

    Raises:
        NotImplementedError: a group whose number of rows is not a multiple of 128, or no GPU.
    """
    require_triton(x, "planes")
    N = expect_planes(x, words, scales32)
    out = output(x, N, out)
    if len(x):
        multiply_planes(x, words, scales32, out, config or TILE(x.device, *sizes_of(x, scales32)))
    return out


@planned
def stream(
    x: Tensor, words: Tensor, scales32: Tensor, *, out: Tensor | None = None, config: Stream | None = None
) -> Tensor:
    """Multiply few tokens: weights stream into shared memory, starting before the preceding kernel has ended.

    Arguments are as in ``planes``.

    Raises:
        NotImplementedError: ``planes`` refuses the arguments, the table has no tile for so many tokens, rows of x or
            of the scales are not multiples of 16 bytes, or the GPU is older than Hopper.
    """
    out = output(x, expect_planes(x, words, scales32), out)
    config = config or STREAM(x.device, *sizes_of(x, scales32))
    if refusal := _why_no_stream(x, scales32, config):
        raise NotImplementedError(refusal)
    if config and len(x):
        multiply_stream(x, words, scales32, out, config)
    return out


@planned
def ring(
    x: Tensor, words: Tensor, scales32: Tensor, *, out: Tensor | None = None, config: Ring | None = None
) -> Tensor:
    """Multiply many tokens on Hopper: one warp loads; of two warp groups, one unpacks while the other multiplies.

    Arguments are as in ``planes``.

    Raises:
        NotImplementedError: ``planes`` refuses the arguments, rows of x or of the result are not multiples of 16 bytes,
            or the GPU is not a Hopper.
    """
    out = output(x, expect_planes(x, words, scales32), out)
    if refusal := _why_no_ring(x, out):
        raise NotImplementedError(refusal)
    if len(x):
        multiply_ring(x, words, scales32, out, config or RING(x.device, *sizes_of(x, scales32)))
    return out


@planned
def w4a16(
    x: Tensor, words: Tensor, scales32: Tensor, *, out: Tensor | None = None, config: str | None = None
) -> Tensor:
    """Compute ``x @ W`` for an int4 weight with the variant that is fastest at these sizes.

    Args:
        x: float16 [M, K].
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N].
        out: float16 [M, N] to write into.
        config: "stream", "ring", "planes" or "dequant"; by default the entry of the GPU's table for these sizes.

    Raises:
        NotImplementedError: a group whose number of rows is not a multiple of 128, or ``config`` refuses the arguments.
    """
    out = output(x, expect_planes(x, words, scales32), out)
    if not len(x):
        return out
    sizes = sizes_of(x, scales32)
    name = config or BEST(x.device, *sizes)
    if name == "stream" and (config or not _why_no_stream(x, scales32, STREAM(x.device, *sizes))):
        return stream(x, words, scales32, out=out)
    if name == "ring" and (config or not _why_no_ring(x, out)):
        return ring(x, words, scales32, out=out)
    # A variant that refuses these arguments is replaced by a variant that accepts any arguments.
    no_triton = x.device.type == "cpu" and not interpreted()
    if name == "dequant" or (not config and (len(x) > LARGEST_PLANES_M or no_triton)):
        return dequant(x, words, scales32, out=out)
    return planes(x, words, scales32, out=out)


def _why_no_stream(x: Tensor, scales32: Tensor, config: Stream | None) -> str | None:
    """Return why ``stream`` refuses these arguments with this tile; None if it accepts them."""
    if not has_hopper_ptx(x.device):
        return "stream loads by the tensor memory accelerator: NVIDIA GPUs from Hopper on have it"
    if config is None:
        return f"stream has no tile for {len(x)} tokens, only for fewer; call w4a16"
    if len(x) > config.tokens:
        return f"this tile of stream holds {config.tokens} tokens, got {len(x)}"
    return _ragged("stream", x=x, **({"scales32": scales32} if len(scales32) > 1 else {}))


def _why_no_ring(x: Tensor, out: Tensor) -> str | None:
    """Return why ``ring`` refuses these arguments; None if it accepts them."""
    if not has_wgmma(x.device):
        return "ring uses wgmma, which only Hopper GPUs have (compute capability 9.0)"
    return _ragged("ring", x=x, out=out)


def _ragged(variant: str, **tensors: Tensor) -> str | None:
    """Return why TMA cannot read a tensor, whose rows must be multiples of 16 bytes; None if TMA can read all
    tensors.
    """
    for name, tensor in tensors.items():
        if size := tensor.shape[1] * tensor.element_size() % 16:
            return f"{variant} needs rows of {name} of a multiple of 16 bytes, got {size} bytes beyond one"
    return None


def _prepare_planes(codes: Tensor, scales: Tensor) -> dict[str, Any]:
    expect_quantised(codes, scales)
    return {"words": pack_planes(codes), "scales32": scales.float()}


VARIANTS = {
    "fp16": fp16,
    "dequant": dequant,
    "int4pack": int4pack,
    "humming": humming,
    "gemlite": gemlite,
    "planes": planes,
    "stream": stream,
    "ring": ring,
    "best": w4a16,
}

PREPARE = {
    "fp16": prepare_fp16,
    "int4pack": prepare_int4pack,
    "humming": prepare_humming,
    "gemlite": prepare_gemlite,
    **dict.fromkeys(("dequant", "planes", "stream", "ring", "best"), _prepare_planes),
}

SCRATCH = BUFFERS


def _variants_at(M: int, K: int, N: int, group: int | str) -> SearchSpace:
    fitting = ["stream"] if M <= 32 else ["ring"]
    names = [*fitting, *(["planes"] if M <= LARGEST_PLANES_M else []), *(["dequant"] if M > 64 else [])]
    return search_space("best", names, M, K, N, group)


#: Search spaces of ``lockstep tune``: variant → function of a case.
CANDIDATES = {"planes": tiles_at, "stream": streams_at, "ring": rings_at, "best": _variants_at}
