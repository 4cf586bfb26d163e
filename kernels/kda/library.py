"""Library variants of ``kda``: cuBLAS, before and after SGLang PR 17801 merged the weights, and as served today."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from kernels.common.arguments import expect
from kernels.kda.arguments import FLOATS, Outputs, Sizes, buffer_of, joint_of, sizes_of

#: Maximum number of tokens for a second stream.
SIDE_ROWS = 128


def eight(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_beta: Tensor,
    w_fa: Tensor,
    w_ga: Tensor,
    w_fb: Tensor,
    w_gb: Tensor,
    *,
    out: Tensor | None = None,
) -> Outputs:
    """Compute eight products, one for each layer, as in the model before its weights were merged.

    Args:
        x: [M, K].
        w_q: [D, K]; so are ``w_k`` and ``w_v``.
        w_beta: [H, K].
        w_fa: [R, K]; so is ``w_ga``.
        w_fb: [D, R]; so is ``w_gb``.
        out: flat buffer, see ``kernels.kda``.

    Returns:
        (q, k, v, beta, f, g): [M, D] each, beta [M, H].
    """
    expect(x, "x", shape=(None, None), dtype=FLOATS)
    expect(w_fb, "w_fb", shape=(None, None), dtype=x.dtype, device=x.device)
    expect(w_beta, "w_beta", shape=(None, x.shape[1]), dtype=x.dtype, device=x.device)
    sizes = Sizes(x.shape[0], x.shape[1], w_fb.shape[0], w_beta.shape[0], w_fb.shape[1])
    M, K, D, H, R = sizes
    for weight, name in ((w_q, "w_q"), (w_k, "w_k"), (w_v, "w_v")):
        expect(weight, name, shape=(D, K), dtype=x.dtype, device=x.device)
    for weight, name in ((w_fa, "w_fa"), (w_ga, "w_ga")):
        expect(weight, name, shape=(R, K), dtype=x.dtype, device=x.device)
    expect(w_gb, "w_gb", shape=(D, R), dtype=x.dtype, device=x.device)
    # beta comes last, because after its H columns the next part would not begin at a multiple of 16 bytes.
    parts = buffer_of(x, sizes, out).split([M * n for n in (D, D, D, R, R, D, D, H)])
    q, k, v, f_a, g_a, f, g, beta = (part.view(M, -1) for part in parts)
    for weight, target in ((w_q, q), (w_k, k), (w_v, v), (w_beta, beta), (w_fa, f_a), (w_ga, g_a)):
        torch.mm(x, weight.t(), out=target)
    torch.mm(f_a, w_fb.t(), out=f)
    torch.mm(g_a, w_gb.t(), out=g)
    return q, k, v, beta, f, g


def merged(x: Tensor, w_qkvbfg: Tensor, w_fg: Tensor, *, out: Tensor | None = None) -> Outputs:
    """Compute the six layers that read ``x`` as one product, then f and g as one batched product (SGLang PR 17801).

    Args:
        x: [M, K].
        w_qkvbfg: [3·D + H + 2·R, K], the rows of q, k, v, beta, f_a, g_a in the order of the PR.
        w_fg: [2, D, R], ``w_fb`` and ``w_gb``.
        out: flat buffer, see ``kernels.kda``.

    Returns:
        As ``eight``; q, k, v and beta are slices of one [M, N] matrix.
    """
    sizes = sizes_of(x, w_qkvbfg, "w_qkvbfg", w_fg)
    D, H, R = sizes.D, sizes.H, sizes.R
    joint, fg = joint_of(buffer_of(x, sizes, out), sizes)
    torch.mm(x, w_qkvbfg.t(), out=joint)
    q, k, v, beta, low_rank = joint.split((D, D, D, H, 2 * R), dim=1)
    torch.bmm(low_rank.unflatten(1, (2, R)).transpose(0, 1), w_fg.transpose(1, 2), out=fg)
    return q, k, v, beta, fg[0], fg[1]


def side_stream(x: Tensor, w_qkvg: Tensor, w_fab: Tensor, w_fb: Tensor, *, out: Tensor | None = None) -> Outputs:
    """Compute q, k, v and g as one product, beside f_a with beta and then f on a second stream.

    SGLang PR 36206 and TensorRT-LLM PR 17311 serve Kimi K3 in this way, the latter with a second stream for up to
    ``SIDE_ROWS`` tokens. Their g has full rank, so ``pack_for_side_stream`` multiplies the two weights of g.

    Args:
        x: [M, K].
        w_qkvg: [4·D, K].
        w_fab: [R + H + padding, K], the rows of f_a and beta.
        w_fb: [D, R].
        out: flat buffer, see ``kernels.kda``.

    Returns:
        As ``eight``.
    """
    expect(x, "x", shape=(None, None), dtype=FLOATS)
    (M, K), (D, R) = x.shape, w_fb.shape
    expect(w_qkvg, "w_qkvg", shape=(4 * D, K), dtype=x.dtype, device=x.device)
    expect(w_fab, "w_fab", shape=(None, K), dtype=x.dtype, device=x.device)
    H = D // R
    parts = buffer_of(x, Sizes(M, K, D, H, R), out).split((M * 4 * D, M * D, M * (2 * R + H)))
    qkvg, f, fab = parts[0].view(M, -1), parts[1].view(M, D), parts[2][: M * len(w_fab)].view(M, -1)

    def project_f() -> None:
        torch.mm(x, w_fab.t(), out=fab)
        torch.mm(fab[:, :R], w_fb.t(), out=f)

    if x.device.type == "cuda" and M <= SIDE_ROWS:
        here, side = torch.cuda.current_stream(x.device), _side(x.device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            project_f()
        torch.mm(x, w_qkvg.t(), out=qkvg)
        here.wait_stream(side)
    else:
        torch.mm(x, w_qkvg.t(), out=qkvg)
        project_f()
    q, k, v, g = qkvg.split(D, dim=1)
    return q, k, v, fab[:, R : R + H], f, g


@functools.cache
def _side(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def pack_for_side_stream(**weights: Tensor) -> dict[str, Tensor]:
    """Return the weights of ``side_stream``. Zero rows pad f_a and beta to 16 bytes, as in TensorRT-LLM."""
    w_g = (weights["w_gb"].float() @ weights["w_ga"].float()).to(weights["w_ga"].dtype)
    fab = torch.cat((weights["w_fa"], weights["w_beta"]))
    padding = fab.new_zeros(-len(fab) % 8, fab.shape[1])
    return {
        "w_qkvg": torch.cat((weights["w_q"], weights["w_k"], weights["w_v"], w_g)),
        "w_fab": torch.cat((fab, padding)),
    }
