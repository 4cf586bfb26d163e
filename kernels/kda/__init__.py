"""Kimi Delta Attention projections: eight linear layers that share one input.

``q, k, v, beta, f_a, g_a = x @ W.T`` for six weights, then ``f = f_a @ w_fb.T`` and ``g = g_a @ w_gb.T``.
SGLang PR 17801 merged the six into one product and the last two into one batched product; the variants
"eight" and "merged" are its before and after.

Sizes: M tokens, K = hidden size, H heads on this rank, R = 128 (head size and rank of f and g), D = H·R.
Weights are stored as ``torch.nn.Linear`` stores them, [out, in].

``out`` is one flat buffer of ``M · (3·D + H + 2·R + 2·D)`` elements. Each variant lays its tensors out in it,
contiguous or as slices of a wider matrix, and returns views. So every variant overwrites the same memory in the layout
that suits it.

For an argument with a wrong shape, dtype, device or stride, a variant raises a ValueError that names the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from kernels.call_plans import planned
from kernels.common.arguments import expect
from kernels.common.devices import require_triton
from kernels.common.tables import SearchSpace, first_that_can
from kernels.common.workspace import BUFFERS
from kernels.kda.arguments import RANK, Outputs, buffer_of, joint_of, pack, pack_as_source, sizes_of
from kernels.kda.library import eight, merged, pack_for_side_stream, side_stream
from kernels.kda.prefill_kernel import prefill
from kernels.kda.product_kernel import product
from kernels.kda.stream_kernel import STREAM_LIMIT, Stream, decode_stream, streams_at
from kernels.kda.table import TABLE
from kernels.kda.tiles_kernel import decode_tiles

#: Variant that ``kda`` calls. "aligned" is 1 if rows of the merged result are multiples of 16 bytes. With 4 heads they
#: are not, and cuBLAS falls back to a kernel of half the speed (H200, docs/evidence/kernels/kda.md).
BEST = TABLE.choice("best", str, "M K N aligned", upto="M")


@planned
def two_products(x: Tensor, w_in: Tensor, w_fg: Tensor, *, out: Tensor | None = None) -> Outputs:
    """Compute the two products of ``merged`` with two launches of one plain Triton kernel.

    Args:
        x: [M, K], contiguous.
        w_in: [3·D + 2·R + H, K], contiguous: the rows of q, k, v, f_a, g_a, beta. With beta last, every slice starts
            at a multiple of 16 bytes. In the order of SGLang PR 17801, f_a of 4 heads does not.
        w_fg: [2, D, R], contiguous.
        out: flat buffer, see the module.

    Returns:
        As ``merged``.

    Raises:
        NotImplementedError: ``x`` is not on a GPU.
    """
    require_triton(x, "triton")
    sizes = sizes_of(x, w_in, "w_in", w_fg)
    D, H, R = sizes.D, sizes.H, sizes.R
    for tensor, name in ((x, "x"), (w_in, "w_in"), (w_fg, "w_fg")):
        expect(tensor, name, contiguous=True)
    joint, fg = joint_of(buffer_of(x, sizes, out), sizes)
    q, k, v, low_rank, beta = joint.split((D, D, D, 2 * R, H), dim=1)
    product(x, w_in, joint)
    product(low_rank.unflatten(1, (2, R)).transpose(0, 1), w_fg, fg)
    return q, k, v, beta, fg[0], fg[1]


@planned
def mixed(x: Tensor, w_in: Tensor, w_fg: Tensor, *, out: Tensor | None = None) -> Outputs:
    """Compute the product with ``w_in`` by cuBLAS, and f and g by the Triton kernel of ``two_products``.

    A planned launch takes the host less time than a call of torch. Arguments, results and errors are those of
    ``two_products``.
    """
    require_triton(x, "mixed")
    sizes = sizes_of(x, w_in, "w_in", w_fg)
    D, H, R = sizes.D, sizes.H, sizes.R
    expect(w_fg, "w_fg", contiguous=True)
    joint, fg = joint_of(buffer_of(x, sizes, out), sizes)
    torch.mm(x, w_in.t(), out=joint)
    q, k, v, low_rank, beta = joint.split((D, D, D, 2 * R, H), dim=1)
    product(low_rank.unflatten(1, (2, R)).transpose(0, 1), w_fg, fg)
    return q, k, v, beta, fg[0], fg[1]


@planned
def tiles(x: Tensor, w_in: Tensor, w_fg: Tensor, *, out: Tensor | None = None) -> Outputs:
    """Compute all eight products in one launch on tensor cores (``kernels.kda.tiles_kernel``).

    Args:
        x: [M, K], contiguous, M ≤ 128.
        w_in: [3·D + 2·R + H, K], the merged weight of ``two_products``.
        w_fg: [2, D, R], contiguous.
        out: flat buffer, see the module.

    Returns:
        As ``eight``; q, k and v are slices of one matrix.

    Raises:
        NotImplementedError: more than 128 tokens, sizes that do not divide evenly, or a tensor that is not on a GPU.
    """
    return _one_launch("tiles", decode_tiles, x, w_in, w_fg, out)


@planned
def stream(
    x: Tensor, w_in: Tensor, w_fg: Tensor, *, out: Tensor | None = None, config: Stream | None = None
) -> Outputs:
    """Compute as ``tiles``, in one launch that loads weights before the preceding kernel ends, for M ≤ 32."""
    return _one_launch("stream", partial(decode_stream, config=config), x, w_in, w_fg, out)


@planned
def persistent(x: Tensor, w_in: Tensor, w_fg: Tensor, *, out: Tensor | None = None) -> Outputs:
    """Compute as ``tiles``, in one launch of persistent programs (``kernels.kda.prefill_kernel``), for large M."""
    return _one_launch("persistent", prefill, x, w_in, w_fg, out)


def _one_launch(
    name: str,
    launch: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], None],
    x: Tensor,
    w_in: Tensor,
    w_fg: Tensor,
    out: Tensor | None,
) -> Outputs:
    require_triton(x, name)
    sizes = sizes_of(x, w_in, "w_in", w_fg)
    for tensor, argument in ((x, "x"), (w_in, "w_in"), (w_fg, "w_fg")):
        expect(tensor, argument, contiguous=True)
    M, _, D, H, R = sizes
    # beta is separate: with its H columns inside, some rows of the wide matrix would not start at a multiple of 16
    # bytes.
    parts = buffer_of(x, sizes, out).split((2 * M * D, M * (3 * D + 2 * R), M * H))
    fg, wide, beta = parts[0].view(2, M, D), parts[1].view(M, -1), parts[2].view(M, H)
    launch(x, w_in, w_fg, wide, beta, fg)
    q, k, v, _ = wide.split((D, D, D, 2 * R), dim=1)
    return q, k, v, beta, fg[0], fg[1]


@planned
def kda(x: Tensor, w_in: Tensor, w_fg: Tensor, *, out: Tensor | None = None, config: str | None = None) -> Outputs:
    """Compute the eight projections with the table's variant for the shape, or with the variant ``config`` names.

    Arguments, results and errors are those of ``two_products``, but a CPU tensor is accepted and computed by torch.
    """
    if x.device.type == "cpu" or w_fg.shape[-1] != RANK or not len(x):
        return _cublas(x, w_in, w_fg, out=out)
    if config:
        return BACKENDS[config](x, w_in, w_fg, out=out)
    rows_of_weight, K = w_in.shape[0], w_in.shape[-1]
    best = BEST(x.device, x.shape[0], K, rows_of_weight, rows_of_weight * x.element_size() % 16 == 0)
    names = (best, *PLAINER.get(best, ()), "torch")
    return first_that_can(names, lambda name: BACKENDS[name](x, w_in, w_fg, out=out))


def _cublas(x: Tensor, w_in: Tensor, w_fg: Tensor, *, out: Tensor | None = None) -> Outputs:
    sizes = sizes_of(x, w_in, "w_in", w_fg)
    D, H, R = sizes.D, sizes.H, sizes.R
    joint, fg = joint_of(buffer_of(x, sizes, out), sizes)
    torch.mm(x, w_in.t(), out=joint)
    q, k, v, low_rank, beta = joint.split((D, D, D, 2 * R, H), dim=1)
    torch.bmm(low_rank.unflatten(1, (2, R)).transpose(0, 1), w_fg.transpose(1, 2), out=fg)
    return q, k, v, beta, fg[0], fg[1]


BACKENDS = {
    "tiles": tiles,
    "stream": stream,
    "triton": two_products,
    "persistent": persistent,
    "mixed": mixed,
    "torch": _cublas,
}

#: Variants for the sizes and GPUs that the best variant refuses. After them comes cuBLAS.
PLAINER = {"stream": ("tiles",), "persistent": ("triton",)}

VARIANTS = {
    "eight": eight,
    "merged": merged,
    "side_stream": side_stream,
    "triton": two_products,
    "tiles": tiles,
    "stream": stream,
    "persistent": persistent,
    "mixed": mixed,
    "best": kda,
}

PREPARE = {
    "merged": pack_as_source,
    "side_stream": pack_for_side_stream,
    **dict.fromkeys(("triton", "tiles", "stream", "persistent", "mixed", "best"), pack),
}

SCRATCH = BUFFERS


def _variants_at(M: int, K: int, heads: int) -> SearchSpace:
    N = (3 * heads + 2) * RANK + heads
    fitting = [name for name, limit in (("stream", STREAM_LIMIT), ("tiles", 128)) if limit >= M]
    sizes = {"M": M, "K": K, "N": N, "aligned": N % 8 == 0}
    return SearchSpace("best", sizes, [*fitting, "triton", *(["persistent"] if M >= 512 else []), "mixed", "torch"])


#: Search spaces of ``lockstep tune``: variant → function of a case.
CANDIDATES = {"stream": streams_at, "best": _variants_at}
