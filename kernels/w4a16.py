"""Small and large batches through int4 weights: ``y = x @ W`` with ``W = (codes − 8) · scales``.

x is float16 [M, K], W is [K, N] and y float16 [M, N]; products are accumulated in float32. Each scale serves a
group of K / groups rows of one column: groups of 128 rows, or one group (a scale per output channel). How the
codes are packed is told in ``kernels.int4``; every variant gets its own packing, made offline by ``PREPARE``.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.arguments import expect
from kernels.devices import require_triton
from kernels.int4 import (
    CODES_PER_WORD,
    PLANE_K,
    dequantise,
    dequantise_planes,
    expect_quantised,
    has_hopper_ptx,
    has_wgmma,
    pack_pairs,
    pack_planes,
    pack_rows,
    plane_shape,
)
from kernels.scratch import KEPT
from kernels.w4a16_choice import Weights, choose
from kernels.w4a16_planes import Tile, choose_tile, multiply_planes
from kernels.w4a16_ring import Ring, choose_ring, multiply_ring
from kernels.w4a16_stream import LARGEST_STREAMED_M, Stream, choose_stream, multiply_stream

#: Group sizes of ``torch._weight_int4pack_mm``, and its packing of k-tiles (8: 16-byte loads).
INT4PACK_GROUPS = (32, 64, 128, 256)
INT4PACK_K_TILES = 8

#: Beyond it ``planes`` is slower than to dequantise once and leave the product to cuBLAS.
LARGEST_PLANES_M = 2048


def fp16(x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The product with the weight kept in float16: cuBLAS.

    Args:
        x: float16 [M, K].
        weight: float16 [K, N], any strides; ``PREPARE`` stores it as ``torch.nn.Linear`` does (K contiguous).
        out: float16 [M, N] to write into.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
    """
    expect(x, "x", shape=(None, None), dtype=torch.float16)
    expect(weight, "weight", shape=(x.shape[1], None), dtype=torch.float16, device=x.device)
    return torch.mm(x, weight, out=_output(x, weight.shape[1], out))


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
    N = _expect_planes(x, words, scales32)
    return torch.mm(x, dequantise_planes(words, scales32, x.shape[1]), out=_output(x, N, out))


def int4pack(x_bf16: torch.Tensor, tiles: torch.Tensor, scales_and_zeros: torch.Tensor) -> torch.Tensor:
    """PyTorch's own int4 product, ``torch._weight_int4pack_mm``; on CUDA it computes in bfloat16 only.

    Args:
        x_bf16: bfloat16 [M, K], converted offline.
        tiles: the codes as ``torch._convert_weight_to_int4pack`` lays them out for this device.
        scales_and_zeros: bfloat16 [groups, N, 2], the second always zero.

    Returns:
        bfloat16 [M, N]; the operation has no ``out=``.

    Raises:
        NotImplementedError: a group size it does not know.
    """
    expect(x_bf16, "x_bf16", shape=(None, None), dtype=torch.bfloat16)
    expect(scales_and_zeros, "scales_and_zeros", shape=(None, None, 2), dtype=torch.bfloat16, device=x_bf16.device)
    group = x_bf16.shape[1] // len(scales_and_zeros)
    if group not in INT4PACK_GROUPS:
        raise NotImplementedError(f"torch._weight_int4pack_mm has groups of {INT4PACK_GROUPS}, not {group}")
    multiply = torch._weight_int4pack_mm_for_cpu if x_bf16.device.type == "cpu" else torch._weight_int4pack_mm
    return multiply(x_bf16, tiles, group, scales_and_zeros)


def triton_rows(
    x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """One plain Triton kernel: shift and mask a tile of codes, scale it, multiply.

    Args:
        x: float16 [M, K].
        words: int32 [⌈K / 8⌉, N], see ``int4.pack_rows``.
        scales: float16 [groups, N].
        out: float16 [M, N] to write into.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: a group that is no multiple of 64, or no GPU.
    """
    require_triton(x, "triton")
    K, N = _expect_rows(x, words, scales)
    M, group, block_k = len(x), K // len(scales), 64
    if len(scales) > 1 and group % block_k:
        raise NotImplementedError(f"triton needs groups of a multiple of {block_k} rows, got {group}")
    out = _output(x, N, out)
    block_m, block_n = (16, 64) if M <= 16 else (64, 128)
    grid = (triton.cdiv(N, block_n), triton.cdiv(M, block_m))
    _multiply_rows[grid](x, words, scales, out, M, N, K, group, BM=block_m, BN=block_n, BK=block_k, num_stages=4)
    return out


def planes(
    x: torch.Tensor, words: torch.Tensor, scales32: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Nibble planes: the weights are the tensor core's left operand, unpacked from shared memory to registers.

    Nothing is shuffled: see ``int4.pack_planes`` for the layout and docs/kernels/w4a16.md for the design.

    Args:
        x: float16 [M, K].
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N] (four bytes are the least that an asynchronous copy takes).
        out: float16 [M, N] to write into.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: a group that is no multiple of 128, or no GPU.
    """
    require_triton(x, "planes")
    N = _expect_planes(x, words, scales32)
    out = _output(x, N, out)
    if len(x):
        multiply_planes(x, words, scales32, out, choose_tile(len(x)))
    return out


def stream(
    x: torch.Tensor, words: torch.Tensor, scales32: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Few tokens: weights stream into shared memory, from before the kernel in front has ended.

    Arguments as those of ``planes``.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: what ``planes`` cannot do either, too many tokens, rows of x or of the scales that are no
            multiple of 16 bytes, or a GPU older than Hopper.
    """
    out = _output(x, _expect_planes(x, words, scales32), out)
    if refusal := _why_no_stream(x, scales32):
        raise NotImplementedError(refusal)
    if len(x):
        multiply_stream(x, words, scales32, out, choose_stream(len(x)))
    return out


def ring(
    x: torch.Tensor, words: torch.Tensor, scales32: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Many tokens on Hopper: a warp that only loads, two warp groups of which one unpacks while the other multiplies.

    Arguments as those of ``planes``.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: what ``planes`` cannot do either, rows of x or of the result that are no multiple of 16
            bytes, or another GPU than Hopper.
    """
    out = _output(x, _expect_planes(x, words, scales32), out)
    if refusal := _why_no_ring(x, out):
        raise NotImplementedError(refusal)
    if len(x):
        multiply_ring(x, words, scales32, out, choose_ring(len(x)))
    return out


def w4a16(
    x: torch.Tensor, words: torch.Tensor, scales32: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """``x @ W`` for an int4 weight, by the fastest way known for these sizes.

    Args:
        x: float16 [M, K].
        words: int16, see ``int4.pack_planes``.
        scales32: the scales in float32, [groups, N].
        out: float16 [M, N] to write into.

    Raises:
        ValueError: a shape, dtype or device does not fit; names the argument.
        NotImplementedError: a group that is no multiple of 128 rows.
    """
    N = _expect_planes(x, words, scales32)
    out = _output(x, N, out)
    M, K = x.shape
    if not M:
        return out
    way = choose(M, Weights(K, N, grouped=len(scales32) > 1))
    if isinstance(way, Stream) and not _why_no_stream(x, scales32):
        multiply_stream(x, words, scales32, out, way)
    elif isinstance(way, Ring) and not _why_no_ring(x, out):
        multiply_ring(x, words, scales32, out, way)
    elif M > LARGEST_PLANES_M or (x.device.type == "cpu" and not triton.knobs.runtime.interpret):
        dequant(x, words, scales32, out=out)
    else:
        multiply_planes(x, words, scales32, out, way if isinstance(way, Tile) else choose_tile(M))
    return out


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
        # Every word is loaded for each of its eight codes; the cache serves seven of them.
        inside = (at[:, None] < K) & (n[None, :] < N)
        packed = tl.load(words + (at // 8)[:, None] * N + n[None, :], inside, other=0)
        scale = tl.load(scales + (start // group) * N + n, n < N, other=0.0)
        codes = (packed >> shifts[:, None]) & 0xF
        total = tl.dot(values, (codes - 8).to(tl.float16) * scale[None, :], total)
    kept = (m[:, None] < M) & (n[None, :] < N)
    tl.store(out + m.to(tl.int64)[:, None] * N + n[None, :], total.to(tl.float16), kept)


def _expect_planes(x: torch.Tensor, words: torch.Tensor, scales32: torch.Tensor) -> int:
    """N of a product whose weight is packed in planes."""
    expect(x, "x", shape=(None, None), dtype=torch.float16, contiguous=True)
    K = x.shape[1]
    expect(scales32, "scales32", shape=(None, None), dtype=torch.float32, device=x.device, contiguous=True)
    _expect_groups(scales32, "scales32", K)
    N = scales32.shape[1]
    expect(words, "words", shape=plane_shape(K, N), dtype=torch.int16, device=x.device, contiguous=True)
    if len(scales32) > 1 and (group := K // len(scales32)) % PLANE_K:
        raise NotImplementedError(f"planes hold groups of a multiple of {PLANE_K} rows, got {group}")
    return N


def _expect_rows(x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor) -> tuple[int, int]:
    """K and N of a product whose weight is packed by rows."""
    expect(x, "x", shape=(None, None), dtype=torch.float16, contiguous=True)
    K = x.shape[1]
    expect(scales, "scales", shape=(None, None), dtype=torch.float16, device=x.device, contiguous=True)
    _expect_groups(scales, "scales", K)
    N = scales.shape[1]
    shape = (-(-K // CODES_PER_WORD), N)
    expect(words, "words", shape=shape, dtype=torch.int32, device=x.device, contiguous=True)
    return K, N


def _expect_groups(scales: torch.Tensor, name: str, K: int) -> None:
    if not len(scales) or K % len(scales):
        raise ValueError(f"{name} must have a number of rows that divides K={K}, got {len(scales)}")


def _why_no_stream(x: torch.Tensor, scales32: torch.Tensor) -> str | None:
    """What keeps ``stream`` from taking these arguments."""
    if not has_hopper_ptx(x.device):
        return "stream loads by the tensor memory accelerator: NVIDIA GPUs from Hopper on have it"
    if len(x) > LARGEST_STREAMED_M:
        return f"stream holds at most {LARGEST_STREAMED_M} tokens, got {len(x)}"
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


def _output(x: torch.Tensor, N: int, out: torch.Tensor | None) -> torch.Tensor:
    """The caller's buffer, checked, or a new one; float16 [M, N]."""
    if out is None:
        return torch.empty(len(x), N, dtype=torch.float16, device=x.device)
    expect(out, "out", shape=(len(x), N), dtype=torch.float16, device=x.device, contiguous=True)
    return out


def _prepare_fp16(codes: torch.Tensor, scales: torch.Tensor) -> dict[str, Any]:
    return {"weight": dequantise(codes, scales).t().contiguous().t()}


def _prepare_rows(codes: torch.Tensor, scales: torch.Tensor) -> dict[str, Any]:
    expect_quantised(codes, scales)
    return {"words": pack_rows(codes)}


def _prepare_planes(codes: torch.Tensor, scales: torch.Tensor) -> dict[str, Any]:
    expect_quantised(codes, scales)
    return {"words": pack_planes(codes), "scales32": scales.float()}


def _prepare_int4pack(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> dict[str, Any]:
    expect_quantised(codes, scales)
    K, N = codes.shape
    # Its largest group is 256 rows: a wider group repeats its scale, which changes no result.
    repeats = max(1, K // len(scales) // max(INT4PACK_GROUPS))
    if K % (16 * INT4PACK_K_TILES) or N % 16 or K % (repeats * len(scales)):
        raise NotImplementedError(
            f"torch._weight_int4pack_mm needs K in multiples of {16 * INT4PACK_K_TILES} and N of 16, got {K} and {N}"
        )
    scales = scales.to(torch.bfloat16).repeat_interleave(repeats, dim=0)
    if codes.device.type == "cpu":
        tiles = torch._convert_weight_to_int4pack_for_cpu(codes.t().int().contiguous(), INT4PACK_K_TILES)
    else:
        tiles = torch._convert_weight_to_int4pack(pack_pairs(codes), INT4PACK_K_TILES)
    return {
        "x_bf16": x.to(torch.bfloat16),
        "tiles": tiles,
        "scales_and_zeros": torch.stack((scales, torch.zeros_like(scales)), dim=2),
    }


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
    "fp16": _prepare_fp16,
    "dequant": _prepare_planes,
    "int4pack": _prepare_int4pack,
    "triton": _prepare_rows,
    "planes": _prepare_planes,
    "stream": _prepare_planes,
    "ring": _prepare_planes,
    "best": _prepare_planes,
}

SCRATCH = KEPT
