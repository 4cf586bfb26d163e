"""Int4 weights: the meaning of a code, and the layouts that the kernels need.

A weight is ``(code − 8) · scale``: codes are 0 … 15, symmetric about the zero point 8. Each scale serves ``K / groups``
consecutive rows of one column (one group: a scale per output channel). Packing runs offline, with torch, on any device.
Unpacking also runs inside Triton kernels.

For an argument with a wrong shape, dtype or value, a function raises a ValueError that names the argument.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.common.arguments import expect
from kernels.common.devices import capability, interpreted

#: Code of the weight zero.
ZERO_POINT = 8

#: One tile of ``pack_planes``: output channels, rows, and 16-bit words for each channel (four codes a word).
PLANE_N = 64
PLANE_K = 128
PLANE_WORDS = PLANE_K // 4

#: ``pack_planes`` pads N to this, so that a kernel may take 1, 2 or 4 tiles side by side.
PLANE_PADDING = 256


def expect_quantised(codes: Tensor, scales: Tensor) -> None:
    """Raise unless ``codes`` and ``scales`` describe one weight.

    Args:
        codes: uint8 [K, N], 0 … 15.
        scales: float16 [groups, N]; the number of groups divides K.

    Raises:
        ValueError: an argument does not fit; the message names it. Values of ``codes`` are checked on a CPU only.
    """
    expect_codes(codes)
    K, N = codes.shape
    expect(scales, "scales", shape=(None, N), dtype=torch.float16, device=codes.device, contiguous=True)
    if not len(scales) or K % len(scales):
        raise ValueError(f"scales must have a number of rows that divides K={K}, got {len(scales)}")


def expect_codes(codes: Tensor) -> None:
    """Raise unless ``codes`` is uint8 [K, N], and on a CPU unless its values are 0 … 15.

    On a GPU values are not read: reading them would synchronise it, and code that reads values cannot be traced.
    """
    expect(codes, "codes", shape=(None, None), dtype=torch.uint8)
    if codes.numel() and codes.device.type == "cpu" and (largest := int(codes.max())) > 15:
        raise ValueError(f"codes must lie in 0 … 15, got {largest}: a code has 4 bits")


def dequantise(codes: Tensor, scales: Tensor) -> Tensor:
    """Return the weight as float16 [K, N], each product rounded once.

    Args:
        codes: uint8 [K, N], 0 … 15.
        scales: float16 [groups, N].
    """
    expect_quantised(codes, scales)
    K, N = codes.shape
    centred = (codes.to(torch.float16) - ZERO_POINT).view(len(scales), K // len(scales), N)
    return (centred * scales.unsqueeze(1)).view(K, N)


def pack_planes(codes: Tensor) -> Tensor:
    """Pack four rows that lie 32 apart into an int16; each tile of 64 channels × 128 rows is contiguous.

    Word j of a channel holds the codes of rows j, j + 32, j + 64 and j + 96 of its tile, the first in the lowest bits.
    One nibble position of adjacent words holds adjacent rows. So one 32-bit operation unpacks a pair in the order that
    the tensor core takes.

    Args:
        codes: uint8 [K, N], 0 … 15. K is padded to a multiple of 128, N to a multiple of 256, with zero points.

    Returns:
        int16 [N' / 64, K' / 128, 64, 32] for the padded sizes.
    """
    expect_codes(codes)
    padded = _pad(codes, PLANE_K, PLANE_PADDING)
    K, N = padded.shape
    # [n tile, k tile, channel, plane, word]
    tiles = padded.view(K // PLANE_K, 4, PLANE_WORDS, N // PLANE_N, PLANE_N).permute(3, 0, 4, 1, 2)
    # A byte of two codes, then a word of two bytes: few operations, none of which makes a tensor wider than the result.
    pairs = (tiles[..., 0::2, :] | tiles[..., 1::2, :] << 4).to(torch.int16)
    return (pairs[..., 0, :] | pairs[..., 1, :] << 8).contiguous()


def unpack_planes(words: Tensor, K: int, N: int) -> Tensor:
    """Return codes uint8 [K, N] from ``pack_planes``.

    Raises:
        ValueError: ``words`` is not an int16 tensor of the shape that ``pack_planes`` makes from [K, N].
    """
    expect(words, "words", shape=plane_shape(K, N), dtype=torch.int16)
    tiles = torch.stack([words >> 4 * plane & 0xF for plane in range(4)], dim=3)
    padded = tiles.permute(1, 3, 4, 0, 2).reshape(words.shape[1] * PLANE_K, -1)
    return padded[:K, :N].to(torch.uint8)


class PlaneShape(NamedTuple):
    """The shape of the words that ``pack_planes`` returns."""

    n_tiles: int
    k_tiles: int
    channels: int
    words: int


def plane_shape(K: int, N: int) -> PlaneShape:
    """Return the shape of the words that ``pack_planes`` makes of codes [K, N]."""
    n_tiles = -(-N // PLANE_PADDING) * (PLANE_PADDING // PLANE_N)
    return PlaneShape(n_tiles, -(-K // PLANE_K), PLANE_N, PLANE_WORDS)


def pack_pairs(codes: Tensor) -> Tensor:
    """Pack rows 2·k (high nibble) and 2·k + 1 of the codes into one row of bytes, and transpose the result.

    ``torch._convert_weight_to_int4pack`` takes this layout on CUDA (aten/src/ATen/native/cuda/int4mm.cu).

    Args:
        codes: uint8 [K, N], 0 … 15, K even.

    Returns:
        uint8 [N, K / 2], contiguous.
    """
    expect_codes(codes)
    if len(codes) % 2:
        raise ValueError(f"codes must have an even number of rows, got {len(codes)}")
    return (codes[::2] << 4 | codes[1::2]).t().contiguous()


# Convert nibble n of a half-word h to float16: (h & 0xf) | 0x6400 is 1024 + n, and (h & 0xf0) | 0x6400 is 1024 + 16 n.
# The next steps, − 1032 and / 16 − 72, are exact. FasterTransformer has the same conversion (interleaved numeric
# conversion); each instruction converts two half-words. The input is read before any output is written, because they
# may share a register.
UNPACK = tl.constexpr("""{
.reg .b32 low, high, offset, sixteenth;
mov.b32 low, $4;
shr.u32 high, $4, 8;
lop3.b32 $0, low, 0x000f000f, 0x64006400, 0xea;
lop3.b32 $1, low, 0x00f000f0, 0x64006400, 0xea;
lop3.b32 $2, high, 0x000f000f, 0x64006400, 0xea;
lop3.b32 $3, high, 0x00f000f0, 0x64006400, 0xea;
mov.b32 offset, 0x64086408;
sub.f16x2 $0, $0, offset;
sub.f16x2 $2, $2, offset;
mov.b32 sixteenth, 0x2c002c00;
mov.b32 offset, 0xd480d480;
fma.rn.f16x2 $1, $1, sixteenth, offset;
fma.rn.f16x2 $3, $3, sixteenth, offset;
}""")


@triton.jit
def unpack_codes(words, PTX: tl.constexpr):
    """Unpack words [rows, 32] of ``pack_planes``: codes − 8, exact, float16 [rows, 128]; ``PTX`` needs sm_90."""
    if PTX:
        plane0, plane1, plane2, plane3 = tl.inline_asm_elementwise(
            UNPACK, "=r,=r,=r,=r,r", [words], dtype=(tl.float16,) * 4, is_pure=True, pack=2
        )
    else:
        plane0 = ((words & 0xF) | 0x6400).to(tl.float16, bitcast=True) - 1032.0
        plane1 = (((words >> 4) & 0xF) | 0x6400).to(tl.float16, bitcast=True) - 1032.0
        plane2 = (((words >> 8) & 0xF) | 0x6400).to(tl.float16, bitcast=True) - 1032.0
        plane3 = (((words >> 12) & 0xF) | 0x6400).to(tl.float16, bitcast=True) - 1032.0
    # In the tensor core's register layout this only renames registers.
    joined = tl.join(tl.join(plane0, plane1), tl.join(plane2, plane3))
    return joined.permute(0, 3, 2, 1).reshape(words.shape[0], 4 * words.shape[1])


def dequantise_planes(words: Tensor, scales32: Tensor, K: int) -> Tensor:
    """Return the weight of ``pack_planes`` as float16 [K, N], stored with K contiguous, each product rounded once.

    Runs a Triton kernel, or torch on a CPU. The variants that call this function have checked the arguments.

    Args:
        words: int16, see ``pack_planes``.
        scales32: the scales in float32, [groups, N]; one group, or groups of a multiple of 128 rows.
        K: rows of the weight.
    """
    groups, N = scales32.shape
    if words.device.type == "cpu" and not interpreted():
        return dequantise(unpack_planes(words, K, N), scales32.to(torch.float16))
    weight = torch.empty(N, K, dtype=torch.float16, device=words.device)
    k_tiles = words.shape[1]
    _dequantise_planes[(k_tiles, triton.cdiv(N, PLANE_N))](
        words,
        scales32,
        weight,
        K,
        N,
        K_TILES=k_tiles,
        GROUP_TILES=k_tiles // groups,
        PTX=has_hopper_ptx(words.device),
    )
    return weight.t()


@triton.jit
def _dequantise_planes(
    words, scales, weight, K, N, K_TILES: tl.constexpr, GROUP_TILES: tl.constexpr, PTX: tl.constexpr
):
    k_tile = tl.program_id(0)
    n_tile = tl.program_id(1)
    row = tl.arange(0, 64)
    n = n_tile * 64 + row
    k = k_tile * 128 + tl.arange(0, 128)
    packed = tl.load(words + (n_tile * K_TILES + k_tile) * 2048 + row[:, None] * 32 + tl.arange(0, 32)[None, :])
    scale = tl.load(scales + (k_tile // GROUP_TILES) * N + n, n < N, other=0.0)
    value = unpack_codes(packed, PTX) * scale.to(tl.float16)[:, None]
    tl.store(weight + n.to(tl.int64)[:, None] * K + k[None, :], value, (n[:, None] < N) & (k[None, :] < K))


def has_hopper_ptx(device: torch.device) -> bool:
    """Return whether inline PTX for sm_90 and programmatic dependent launch can be used."""
    return capability(device) >= (9, 0)


def has_wgmma(device: torch.device) -> bool:
    """Return whether products are asynchronous and take operands from registers, which only Hopper does."""
    return capability(device)[0] == 9


def _pad(codes: Tensor, rows: int, columns: int) -> Tensor:
    """Return ``codes`` padded with zero weights until its sizes are multiples of ``rows`` and ``columns``."""
    K, N = codes.shape
    return torch.nn.functional.pad(codes, (0, -N % columns, 0, -K % rows), value=ZERO_POINT)
