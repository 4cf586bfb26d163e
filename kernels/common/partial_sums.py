"""Sum partial sums across programs of one launch without a counter.

The writer stores its float32 partial sums in a mailbox in global memory. The reader polls the mailbox until no element
is ``EMPTY``, then stores ``EMPTY`` for the next launch. A counter would cost two more round trips to L2: one that
orders the sums before the count, and the count. NCCL's "LL" protocol and the all-reduce kernels of TensorRT-LLM poll
the data in the same way.

A device has one mailbox, so calls must not overlap: use one stream, or events between streams. The reader has a higher
program id than the writers. Programs start in the order of their ids, so the writers that it waits for have started.

A mailbox is faster while a tile has few partial sums. On an H200 a counter was faster once a tile had about 100 rows of
sums (number of partials × tokens), so ``split_k`` of ``kernels.linear`` uses a counter.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.common.devices import sm_count
from kernels.common.workspace import once_per_device

#: Bits of a NaN that arithmetic never produces and no writer posts, and the bits that a writer posts instead.
EMPTY = gl.constexpr(-1)
NAN = gl.constexpr(0x7FC00000)

#: Elements read at once. All partials are loaded together unless the reader lacks the registers.
TOGETHER = gl.constexpr(128 * 128)

#: Elements of the mailbox for each multiprocessor: sums of four programs of 64 rows of the weight and 32 tokens.
ROOM = 4 * 64 * 32


def capacity(device: torch.device) -> int:
    """Return how many elements the mailbox of ``device`` holds."""
    return ROOM * sm_count(device)


@once_per_device
def mailbox(device: torch.device) -> torch.Tensor:
    """Return the mailbox, int32 [capacity(device)]: all EMPTY before and after every launch."""
    return torch.full((capacity(device),), EMPTY.value, dtype=torch.int32, device=device)


@gluon.jit
def post_tile(mail, values):
    """Store float32 ``values`` at the int32 pointers ``mail``; a NaN with the bits of EMPTY becomes another NaN."""
    bits = values.to(gl.int32, bitcast=True)
    gl.store(mail, gl.where(bits == EMPTY, NAN, bits))


@gluon.jit
def read_tiles(mail, PARTIALS: gl.constexpr, STRIDE: gl.constexpr):
    """Wait for ``PARTIALS`` matrices in the mailbox, ``STRIDE`` elements apart; return their sum, added in order.

    The mailbox keeps the matrices, because other programs may still read them.
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
        # Load all partials again, not only the missing ones, so that the loads of one turn are issued together.
        for partial in gl.static_range(PARTIALS):
            bits = gl.load(mail + partial * STRIDE, volatile=True)
            empty |= (bits == EMPTY).to(gl.int32)
            total += bits.to(gl.float32, bitcast=True)
        waiting = gl.max(gl.max(empty, 1), 0)
    return total


@gluon.jit
def empty_tiles(mail, PARTIALS: gl.constexpr, STRIDE: gl.constexpr):
    """Store EMPTY over the matrices of ``read_tiles``. Call this function after every reader has read the matrices."""
    layout: gl.constexpr = mail.type.layout
    for partial in gl.static_range(PARTIALS):
        gl.store(mail + partial * STRIDE, gl.full(mail.shape, EMPTY, gl.int32, layout))
