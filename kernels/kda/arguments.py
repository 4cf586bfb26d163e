"""Check the arguments of ``kda``, lay out its output buffer, and merge its weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernels.common.arguments import expect

#: Head size, and rank of f and g, in every published model. The decoding kernels require it.
RANK = 128

FLOATS = (torch.bfloat16, torch.float16, torch.float32)

Outputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


class Sizes(NamedTuple):
    """Sizes of a layer: M tokens of K features, H heads, R the rank of f_a and g_a, D = H · R."""

    M: int
    K: int
    D: int
    H: int
    R: int

    @property
    def N(self) -> int:
        """Return the rows of the merged weight: q, k, v, f_a, g_a and beta."""
        return 3 * self.D + 2 * self.R + self.H


def sizes_of(x: Tensor, w_in: Tensor, name: str, w_fg: Tensor) -> Sizes:
    """Check the merged weights against ``x``, and return the sizes. Raise ValueError if a shape does not fit."""
    expect(x, "x", shape=(None, None), dtype=FLOATS)
    expect(w_fg, "w_fg", shape=(2, None, None), dtype=x.dtype, device=x.device)
    expect(w_in, name, shape=(None, x.shape[1]), dtype=x.dtype, device=x.device)
    D, R = w_fg.shape[1:]
    H = w_in.shape[0] - 3 * D - 2 * R
    if H < 1:
        raise ValueError(f"{name} must have more than 3·D + 2·R = {3 * D + 2 * R} rows, got {w_in.shape[0]}")
    return Sizes(x.shape[0], x.shape[1], D, H, R)


def buffer_of(x: Tensor, sizes: Sizes, out: Tensor | None) -> Tensor:
    """Check and return ``out``, or return a new flat buffer for the merged product and for f and g."""
    length = sizes.M * (sizes.N + 2 * sizes.D)
    if out is None:
        return x.new_empty(length)
    expect(out, "out", shape=(length,), dtype=x.dtype, device=x.device, contiguous=True)
    return out


def joint_of(buffer: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Return views of the flat buffer: the merged product [M, N], and f and g [2, M, D].

    f and g come first, because 2 · M · D elements end at a multiple of 16 bytes and M · N may not.
    """
    fg, joint = buffer.split((2 * sizes.M * sizes.D, sizes.M * sizes.N))
    return joint.view(sizes.M, sizes.N), fg.view(2, sizes.M, sizes.D)


def _pack(order: tuple[str, ...], name: str, **weights: Tensor) -> dict[str, Tensor]:
    return {name: torch.cat([weights[part] for part in order]), "w_fg": torch.stack((weights["w_fb"], weights["w_gb"]))}


def pack_as_source(**weights: Tensor) -> dict[str, Tensor]:
    """Return merged weights in the order of SGLang PR 17801: q, k, v, beta, f_a, g_a."""
    return _pack(("w_q", "w_k", "w_v", "w_beta", "w_fa", "w_ga"), "w_qkvbfg", **weights)


def pack(**weights: Tensor) -> dict[str, Tensor]:
    """Return merged weights in the order that ``kda`` takes: q, k, v, f_a, g_a, beta."""
    return _pack(("w_q", "w_k", "w_v", "w_fa", "w_ga", "w_beta"), "w_in", **weights)
