"""Int4 weights: what a code means, and the layouts in which the kernels want them.

A weight is ``(code − 8) · scale``: codes are 0 … 15, symmetric about the zero point 8, and each scale serves
``K / groups`` consecutive rows of one column (one group: a scale per output channel). Everything here runs
offline, with torch, on any device.
"""

from __future__ import annotations

import torch

from kernels.arguments import expect

#: The code that stands for zero.
ZERO_POINT = 8

#: Codes in one int32 of ``pack_rows``.
CODES_PER_WORD = 8


def expect_quantised(codes: torch.Tensor, scales: torch.Tensor) -> None:
    """Raise unless ``codes`` and ``scales`` describe one weight.

    Args:
        codes: uint8 [K, N], 0 … 15.
        scales: float16 [groups, N]; groups divides K.

    Raises:
        ValueError: names the argument. Reads ``codes``, so it synchronises a GPU: for offline use.
    """
    expect_codes(codes)
    K, N = codes.shape
    expect(scales, "scales", shape=(None, N), dtype=torch.float16, device=codes.device, contiguous=True)
    if not len(scales) or K % len(scales):
        raise ValueError(f"scales must have a number of rows that divides K={K}, got {len(scales)}")


def expect_codes(codes: torch.Tensor) -> None:
    """Raise unless ``codes`` is uint8 [K, N] with values 0 … 15 (a meta tensor has none to read).

    Raises:
        ValueError: names the argument.
    """
    expect(codes, "codes", shape=(None, None), dtype=torch.uint8)
    if codes.numel() and codes.device.type != "meta" and (largest := int(codes.max())) > 15:
        raise ValueError(f"codes must lie in 0 … 15, got {largest}; pack 8-bit codes elsewhere")


def dequantise(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The weight as float16 [K, N], each product rounded once.

    Args:
        codes: uint8 [K, N], 0 … 15.
        scales: float16 [groups, N].

    Raises:
        ValueError: names the argument.
    """
    expect_quantised(codes, scales)
    K, N = codes.shape
    centred = (codes.to(torch.float16) - ZERO_POINT).view(len(scales), K // len(scales), N)
    return (centred * scales.unsqueeze(1)).view(K, N)


def pack_rows(codes: torch.Tensor) -> torch.Tensor:
    """Eight consecutive rows to an int32, the first in the lowest bits (as GPTQ checkpoints store them).

    Args:
        codes: uint8 [K, N], 0 … 15. K is padded to a multiple of 8 with the zero point.

    Returns:
        int32 [⌈K / 8⌉, N].

    Raises:
        ValueError: names the argument.
    """
    expect_codes(codes)
    padded = _pad(codes, CODES_PER_WORD, 1)
    words = torch.zeros(len(padded) // CODES_PER_WORD, codes.shape[1], dtype=torch.int32, device=codes.device)
    for position, rows in enumerate(padded.view(-1, CODES_PER_WORD, codes.shape[1]).unbind(1)):
        words |= rows.int() << 4 * position
    return words


def unpack_rows(words: torch.Tensor, K: int) -> torch.Tensor:
    """Codes uint8 [K, N] from ``pack_rows``.

    Raises:
        ValueError: ``words`` is not int32 [⌈K / 8⌉, N].
    """
    expect(words, "words", shape=(-(-K // CODES_PER_WORD), None), dtype=torch.int32)
    nibbles = torch.stack([words >> 4 * position & 0xF for position in range(CODES_PER_WORD)], dim=1)
    return nibbles.view(-1, words.shape[1])[:K].to(torch.uint8)


def pack_pairs(codes: torch.Tensor) -> torch.Tensor:
    """Two consecutive k to a byte, the even one in the high nibble, one output channel a row.

    This is what ``torch._convert_weight_to_int4pack`` takes on CUDA (aten/src/ATen/native/cuda/int4mm.cu).

    Args:
        codes: uint8 [K, N], 0 … 15, K even.

    Returns:
        uint8 [N, K / 2], contiguous.

    Raises:
        ValueError: names the argument.
    """
    expect_codes(codes)
    if len(codes) % 2:
        raise ValueError(f"codes must have an even number of rows, got {len(codes)}")
    return (codes[::2] << 4 | codes[1::2]).t().contiguous()


def unpack_pairs(pairs: torch.Tensor) -> torch.Tensor:
    """Codes uint8 [K, N] from ``pack_pairs``.

    Raises:
        ValueError: ``pairs`` is not uint8 [N, K / 2].
    """
    expect(pairs, "pairs", shape=(None, None), dtype=torch.uint8)
    rows = torch.stack((pairs >> 4, pairs & 0xF), dim=2)
    return rows.view(len(pairs), -1).t().contiguous()


def _pad(codes: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """``codes`` with zero weights appended until its sizes are multiples of ``rows`` and ``columns``."""
    K, N = codes.shape
    return torch.nn.functional.pad(codes, (0, -N % columns, 0, -K % rows), value=ZERO_POINT)
