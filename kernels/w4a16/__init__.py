"""Small and large batches through int4 weights: ``y = x @ W`` with ``W = (codes − 8) · scales``.

x is float16 [M, K], W is [K, N] and y float16 [M, N]; products are accumulated in float32. Each scale serves a
group of K / groups rows of one column: groups of 128 rows, or one group (a scale per output channel). How the
codes are packed is told in ``kernels.w4a16.int4``; every variant gets its own packing, made offline by ``PREPARE``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton

from kernels.common.devices import require_triton
from kernels.common.tables import SearchSpace
from kernels.common.workspace import BUFFERS
from kernels.w4a16.arguments import expect_planes, output
from kernels.w4a16.int4 import dequantise_planes, expect_quantised, has_hopper_ptx, has_wgmma, pack_planes
from kernels.w4a16.library import fp16, int4pack, prepare_fp16, prepare_int4pack
from kernels.w4a16.planes_kernel import LARGEST_PLANES_M, TILE, Tile, multiply_planes, tiles_at
from kernels.w4a16.ring_kernel import RING, Ring, multiply_ring, rings_at
from kernels.w4a16.rows_kernel import prepare_rows, triton_rows
from kernels.w4a16.stream_kernel import multiply_stream
from kernels.w4a16.stream_tiles import STREAM, Stream, streams_at
from kernels.w4a16.table import SIZES, TABLE, offer, sizes_of

#: Variant that ``w4a16`` calls.
BEST = TABLE.choice("best", str, SIZES, upto="M")


def dequant(
    x: torch.Tensor, words: torch.Tensor, scales32: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Dequantise into a scratch buffer, then cuBLAS: what exllamav2 does at large M.

    Args:
        x: float16 [M, K].
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N].
        out: float16 [M, N] to write into.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: a group that is no multiple of 128.
    """
    N = expect_planes(x, words, scales32)
    return torch.mm(x, dequantise_planes(words, scales32, x.shape[1]), out=output(x, N, out))


def planes(
    x: torch.Tensor,
    words: torch.Tensor,
    scales32: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    config: Tile | None = None,
) -> torch.Tensor:
    """Nibble planes: the weights are the tensor core's left operand, unpacked from shared memory to registers.

    Nothing is shuffled: see ``int4.pack_planes`` for the layout and docs/kernels/w4a16.md for the design.

    Args:
        x: float16 [M, K].
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N] (four bytes are the least that an asynchronous copy takes).
        out: float16 [M, N] to write into.
        config: the tile; by default the GPU's table has one for these sizes.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: a group that is no multiple of 128, or no GPU.
    """
    require_triton(x, "planes")
    N = expect_planes(x, words, scales32)
    out = output(x, N, out)
    if len(x):
        multiply_planes(x, words, scales32, out, config or TILE(x.device, *sizes_of(x, scales32)))
    return out


def stream(
    x: torch.Tensor,
    words: torch.Tensor,
    scales32: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    config: Stream | None = None,
) -> torch.Tensor:
    """Few tokens: weights stream into shared memory, from before the kernel in front has ended.

    Arguments as those of ``planes``.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: what ``planes`` cannot do either, more tokens than the table has tiles for, rows of x or of
            the scales that are no multiple of 16 bytes, or a GPU older than Hopper.
    """
    out = output(x, expect_planes(x, words, scales32), out)
    config = config or STREAM(x.device, *sizes_of(x, scales32))
    if refusal := _why_no_stream(x, scales32, config):
        raise NotImplementedError(refusal)
    if config and len(x):
        multiply_stream(x, words, scales32, out, config)
    return out


def ring(
    x: torch.Tensor,
    words: torch.Tensor,
    scales32: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    config: Ring | None = None,
) -> torch.Tensor:
    """Many tokens on Hopper: a warp that only loads, two warp groups of which one unpacks while the other multiplies.

    Arguments as those of ``planes``.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: what ``planes`` cannot do either, rows of x or of the result that are no multiple of 16
            bytes, or another GPU than Hopper.
    """
    out = output(x, expect_planes(x, words, scales32), out)
    if refusal := _why_no_ring(x, out):
        raise NotImplementedError(refusal)
    if len(x):
        multiply_ring(x, words, scales32, out, config or RING(x.device, *sizes_of(x, scales32)))
    return out


def w4a16(
    x: torch.Tensor,
    words: torch.Tensor,
    scales32: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    config: str | None = None,
) -> torch.Tensor:
    """``x @ W`` for an int4 weight, by the fastest way known for these sizes.

    Args:
        x: float16 [M, K].
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N].
        out: float16 [M, N] to write into.
        config: "stream", "ring", "planes" or "dequant"; by default what the GPU's table has for these sizes.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: a group that is no multiple of 128 rows, or ``config`` cannot do it.
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
    # What refuses these arguments is replaced by what takes any.
    no_triton = x.device.type == "cpu" and not triton.knobs.runtime.interpret
    if name == "dequant" or (not config and (len(x) > LARGEST_PLANES_M or no_triton)):
        return dequant(x, words, scales32, out=out)
    return planes(x, words, scales32, out=out)


def _why_no_stream(x: torch.Tensor, scales32: torch.Tensor, config: Stream | None) -> str | None:
    """What keeps ``stream`` from taking these arguments with this tile."""
    if not has_hopper_ptx(x.device):
        return "stream loads by the tensor memory accelerator: NVIDIA GPUs from Hopper on have it"
    if config is None:
        return f"stream has no tile for {len(x)} tokens: it is for few"
    if len(x) > config.tokens:
        return f"this tile of stream holds {config.tokens} tokens, got {len(x)}"
    return _ragged("stream", x=x, **({"scales32": scales32} if len(scales32) > 1 else {}))


def _why_no_ring(x: torch.Tensor, out: torch.Tensor) -> str | None:
    """What keeps ``ring`` from taking these arguments."""
    if not has_wgmma(x.device):
        return "ring uses wgmma, which only Hopper GPUs have (compute capability 9.0)"
    return _ragged("ring", x=x, out=out)


def _ragged(variant: str, **tensors: torch.Tensor) -> str | None:
    """The tensor whose rows begin at no multiple of 16 bytes, as the tensor memory accelerator needs it."""
    for name, tensor in tensors.items():
        if size := tensor.shape[1] * tensor.element_size() % 16:
            return f"{variant} needs rows of {name} of a multiple of 16 bytes, got {size} too many"
    return None


def _prepare_planes(codes: torch.Tensor, scales: torch.Tensor) -> dict[str, Any]:
    expect_quantised(codes, scales)
    return {"words": pack_planes(codes), "scales32": scales.float()}


VARIANTS = {
    "fp16": fp16,
    "dequant": dequant,
    "int4pack": int4pack,
    "triton": triton_rows,
    "planes": planes,
    "stream": stream,
    "ring": ring,
    "best": w4a16,
}

PREPARE = {
    "fp16": prepare_fp16,
    "dequant": _prepare_planes,
    "int4pack": prepare_int4pack,
    "triton": prepare_rows,
    "planes": _prepare_planes,
    "stream": _prepare_planes,
    "ring": _prepare_planes,
    "best": _prepare_planes,
}

SCRATCH = BUFFERS


def _variants_at(M: int, K: int, N: int, group: int | str) -> SearchSpace:
    few = ["stream"] if M <= 32 else ["ring"]
    names = [*few, *(["planes"] if M <= LARGEST_PLANES_M else []), *(["dequant"] if M > 64 else [])]
    return offer("best", names, M, K, N, group)


#: What ``lockstep tune`` may try: variant → what is open at a case.
CANDIDATES = {"planes": tiles_at, "stream": streams_at, "ring": rings_at, "best": _variants_at}
