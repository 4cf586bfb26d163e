"""Library variants of ``w4a16``: a float16 weight with cuBLAS, and torch's int4 product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.common.arguments import expect
from kernels.w4a16.arguments import output
from kernels.w4a16.int4 import dequantise, expect_quantised, pack_pairs

#: Group sizes of ``torch._weight_int4pack_mm``, and its packing of k-tiles (8: 16-byte loads).
INT4PACK_GROUPS = (32, 64, 128, 256)
INT4PACK_K_TILES = 8


def fp16(x: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute the product with the weight in float16 by cuBLAS.

    Args:
        x: float16 [M, K].
        weight: float16 [K, N], any strides; ``PREPARE`` stores it as ``torch.nn.Linear`` does (K contiguous).
        out: float16 [M, N] to write into.

    Raises:
        ValueError: a shape, dtype or device does not fit; the message names the argument.
    """
    expect(x, "x", shape=(None, None), dtype=torch.float16)
    expect(weight, "weight", shape=(x.shape[1], None), dtype=torch.float16, device=x.device)
    return torch.mm(x, weight, out=output(x, weight.shape[1], out))


def int4pack(x_bf16: Tensor, tiles: Tensor, scales_and_zeros: Tensor) -> Tensor:
    """Compute PyTorch's int4 product, ``torch._weight_int4pack_mm``; on CUDA it supports bfloat16 only.

    Args:
        x_bf16: bfloat16 [M, K], converted offline.
        tiles: the codes as ``torch._convert_weight_to_int4pack`` lays them out for this device.
        scales_and_zeros: bfloat16 [groups, N, 2]: a scale and a zero.

    Returns:
        bfloat16 [M, N]; the operation has no ``out=``.

    Raises:
        NotImplementedError: torch does not support the group size.
    """
    expect(x_bf16, "x_bf16", shape=(None, None), dtype=torch.bfloat16)
    expect(scales_and_zeros, "scales_and_zeros", shape=(None, None, 2), dtype=torch.bfloat16, device=x_bf16.device)
    group = x_bf16.shape[1] // len(scales_and_zeros)
    if group not in INT4PACK_GROUPS:
        raise NotImplementedError(f"torch._weight_int4pack_mm has groups of {INT4PACK_GROUPS}, not {group}")
    multiply = torch._weight_int4pack_mm_for_cpu if x_bf16.device.type == "cpu" else torch._weight_int4pack_mm
    return multiply(x_bf16, tiles, group, scales_and_zeros)


def prepare_fp16(codes: Tensor, scales: Tensor) -> dict[str, Any]:
    """Return the weight of ``fp16`` as ``torch.nn.Linear`` stores it."""
    return {"weight": dequantise(codes, scales).t().contiguous().t()}


def prepare_int4pack(x: Tensor, codes: Tensor, scales: Tensor) -> dict[str, Any]:
    """Return the arguments of ``int4pack``.

    Raises:
        NotImplementedError: torch's packing does not support the sizes.
    """
    expect_quantised(codes, scales)
    K, N = codes.shape
    # Its largest group is 256 rows. A wider group repeats its scale, which does not change the result.
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
