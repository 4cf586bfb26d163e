"""Unpack int4 codes in planes to the left operand of a product, for Gluon kernels (layout: ``kernels.w4a16.int4``)."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.w4a16.int4 import UNPACK

#: Words [64, 32] in registers: each thread holds the words whose codes the tensor core expects in that thread.
PACKED = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [8, 0], [0, 8], [0, 16]],
        lane_bases=[[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 32],
    )
)


@gluon.jit
def unpack(words, operand: gl.constexpr):
    """Return codes − 8 of words [64, 32] as the left operand, float16 [64, 128]; no data moves between threads."""
    plane0, plane1, plane2, plane3 = gl.inline_asm_elementwise(
        UNPACK, "=r,=r,=r,=r,r", [words], dtype=(gl.float16, gl.float16, gl.float16, gl.float16),
        is_pure=True, pack=2,
    )  # fmt: skip
    joined = gl.join(gl.join(plane0, plane1), gl.join(plane2, plane3))
    return gl.convert_layout(joined.permute((0, 3, 2, 1)).reshape((64, 128)), operand, assert_trivial=True)
