"""Sums across programs of one launch, without a counter: every element says by itself that it has arrived.

A program stores its float32 partial sums where another one will look for them, and that one reads the place again and
again until no element is ``EMPTY``; then it puts ``EMPTY`` back for the next launch. A counter costs two more trips to
L2: one to be sure that the sums are there before it counts, one to count. The idea is the "LL" protocol of NCCL and
the all-reduce kernels of TensorRT-LLM, which spin on the data as well.

The place belongs to the device, so calls must not overlap: one stream, or events between streams. The reader has a
higher program id than the writers: programs start in the order of their ids, so what is waited for has started.

That wins where sums are few: from some 100 rows of sums a tile on (parts times tokens) a counter was faster on an
H200, and ``split_k`` of ``kernels.linear`` has one.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.common.devices import sm_count
from kernels.common.workspace import once_per_device

#: Bits of a NaN that no arithmetic makes and no writer posts, and of the one posted in its place.
EMPTY = gl.constexpr(-1)
NAN = gl.constexpr(0x7FC00000)

#: Elements read at once: all letters travel together unless the reader has no registers for them.
TOGETHER = gl.constexpr(128 * 128)

#: Elements a multiprocessor: four programs of 64 rows of the weight and 32 tokens.
ROOM = 4 * 64 * 32


def room(device: torch.device) -> int:
    """How many elements the mailbox of ``device`` holds."""
    return ROOM * sm_count(device)


@once_per_device
def mailbox(device: torch.device) -> torch.Tensor:
    """int32 [room(device)], all EMPTY before and after every launch."""
    return torch.full((room(device),), EMPTY.value, dtype=torch.int32, device=device)


@gluon.jit
def post_tile(mail, values):
    """Store float32 ``values`` at the int32 pointers ``mail``."""
    bits = values.to(gl.int32, bitcast=True)
    gl.store(mail, gl.where(bits == EMPTY, NAN, bits))


@gluon.jit
def read_tiles(mail, PARTIALS: gl.constexpr, STRIDE: gl.constexpr):
    """The sum of ``LETTERS`` matrices ``STRIDE`` elements apart, in their order, as soon as all are there.

    Others may still want to read, so nothing is put back.
    """
    layout: gl.constexpr = mail.type.layout
    GROUPS: gl.constexpr = (PARTIALS * mail.shape[0] * mail.shape[1] - 1) // TOGETHER + 1
    GROUP: gl.constexpr = (PARTIALS - 1) // GROUPS + 1
    total = gl.zeros(mail.shape, gl.float32, layout)
    for first in gl.static_range(0, PARTIALS, GROUP):
        total += _read_group(mail + first * STRIDE, min(GROUP, PARTIALS - first), STRIDE)
    return total


@gluon.jit
def _read_group(mail, PARTIALS: gl.constexpr, STRIDE: gl.constexpr):
    layout: gl.constexpr = mail.type.layout
    total = gl.zeros(mail.shape, gl.float32, layout)
    waiting = 1
    while waiting > 0:
        empty = gl.zeros(mail.shape, gl.int32, layout)
        total = gl.zeros(mail.shape, gl.float32, layout)
        # All again, not only what was missing: loads of one turn travel together.
        for partial in gl.static_range(PARTIALS):
            bits = gl.load(mail + partial * STRIDE, volatile=True)
            empty |= (bits == EMPTY).to(gl.int32)
            total += bits.to(gl.float32, bitcast=True)
        waiting = gl.max(gl.max(empty, 1), 0)
    return total


@gluon.jit
def empty_tiles(mail, PARTIALS: gl.constexpr, STRIDE: gl.constexpr):
    """Put EMPTY back, after every reader has read."""
    layout: gl.constexpr = mail.type.layout
    for partial in gl.static_range(PARTIALS):
        gl.store(mail + partial * STRIDE, gl.full(mail.shape, EMPTY, gl.int32, layout))
