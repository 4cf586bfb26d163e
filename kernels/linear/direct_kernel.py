"""Variant "direct" of ``kernels.linear``: whole rows of the weight in registers before the preceding kernel ends.

A program owns 16 rows of the weight. Each of its warps takes every fourth (K up to 2048) or eighth block of 64 in K;
the warps add their sums through shared memory. The loads of all the program's weights are issued before ``gdc_wait``.
x, which the preceding kernel may still write, is only prefetched into L2, where later writes reach it.

Elements keep their order in memory. A product does not depend on the order of K, so a thread passes the eight
consecutive elements of its 16-byte load to the tensor core, where ``mma.sync`` expects pairs from two places. The
thread does the same with x (``k_width=8``). So nothing is transposed through shared memory, and x goes straight from
L2 to registers.
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.streaming import prefetch_tokens

#: Maximum rows of x: the narrow side of ``mma.sync``.
TOKENS = 8
#: Rows of the weight for each program.
ROWS = 16
#: Elements of K that a warp takes at once: a line of 128 bytes.
CHUNK = 64
#: Maximum length of a row. At this length half of a multiprocessor's registers hold weights.
MOST_K = 4096


def launch(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write ``out = x @ weight.T + bias``. The caller has checked every argument."""
    (M, K), N = x.shape, weight.shape[0]
    # Four warps hold up to 2048 elements in the same registers, and have fewer sums to add: 4.6 to 3.8 µs at K 1536.
    warps = 8 if K > MOST_K // 2 else 4
    span = CHUNK * warps
    _direct_kernel[(triton.cdiv(N, ROWS),)](
        weight, x, bias, out, M, N, K, HAS_BIAS=bias is not None, EVEN_K=K % span == 0, STEPS=triton.cdiv(K, span),
        ROWS=ROWS, TOKENS=TOKENS, CHUNK=CHUNK, num_warps=warps, launch_pdl=True,
    )  # fmt: skip


@gluon.jit
def _and(tiles, tile):
    """Return a tuple with ``tile`` appended, by an expression that Triton compiles and a type checker accepts."""
    return tiles + (tile,)  # noqa: RUF005


@gluon.jit
def _direct_kernel(
    weight, x, bias, out, M, N, K, HAS_BIAS: gl.constexpr, EVEN_K: gl.constexpr, STEPS: gl.constexpr,
    ROWS: gl.constexpr, TOKENS: gl.constexpr, CHUNK: gl.constexpr,
):  # fmt: skip
    gdc_launch_dependents()
    WARPS: gl.constexpr = gl.num_warps()
    SPAN: gl.constexpr = WARPS * CHUNK
    layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 8)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 8)
    row = gl.program_id(0) * ROWS
    warp = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, left)))[:, None, None]
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(0, gl.SliceLayout(2, left)))[None, :, None] + row
    depth = gl.arange(0, CHUNK, layout=gl.SliceLayout(0, gl.SliceLayout(1, left)))[None, None, :] + warp * CHUNK
    # Rows beyond the edge read row 0 instead of being masked, and are never stored.
    w_at = weight + gl.where(rows < N, rows, 0).to(gl.int64) * K + depth
    weights = ()
    for step in gl.static_range(STEPS):
        if EVEN_K:
            weights = _and(weights, gl.load(w_at + step * SPAN))
        else:
            weights = _and(weights, gl.load(w_at + step * SPAN, mask=depth + step * SPAN < K, other=0.0))
    prefetch_tokens(x, gl.program_id(0), gl.num_programs(0), 0, M, K, STEPS * SPAN)
    gdc_wait()
    warp = gl.arange(0, WARPS, layout=gl.SliceLayout(1, gl.SliceLayout(2, right)))[:, None, None]
    depth = gl.arange(0, CHUNK, layout=gl.SliceLayout(0, gl.SliceLayout(2, right)))[None, :, None] + warp * CHUNK
    token = gl.arange(0, TOKENS, layout=gl.SliceLayout(0, gl.SliceLayout(1, right)))[None, None, :]
    tokens = ()
    for step in gl.static_range(STEPS):
        inside = token < M
        if not EVEN_K:
            inside = inside & (depth + step * SPAN < K)
        tokens = _and(tokens, gl.load(x + token * K + depth + step * SPAN, mask=inside, other=0.0))
    total = gl.zeros((WARPS, ROWS, TOKENS), gl.float32, layout)
    for step in gl.static_range(STEPS):
        total = mma_v2(weights[step], tokens[step], total)
    result = gl.sum(total, axis=0)
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, result.type.layout))
    tokens = gl.arange(0, TOKENS, layout=gl.SliceLayout(0, result.type.layout))
    if HAS_BIAS:
        result += gl.load(bias + rows, mask=rows < N, other=0.0).to(gl.float32)[:, None]
    inside = (rows < N)[:, None] & (tokens < M)[None, :]
    gl.store(out + tokens.to(gl.int64)[None, :] * N + rows[:, None], result.to(out.dtype.element_ty), mask=inside)
