"""How ``kernels.w4a16.stream_kernel`` cuts a product, as the GPU's table has it."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from kernels.common.devices import sm_count
from kernels.common.tables import SearchSpace
from kernels.w4a16.table import SIZES, TABLE, offer


class Stream(NamedTuple):
    """How ``stream`` cuts a product.

    ``tokens`` × ``channels`` (64 or 128) a program, and K cut into as many parts as ``fill`` programs a
    multiprocessor allow. A program has ``crews`` (1, 2 or 4) of four warps, which take turns of ``depth`` · 128 rows
    of its K and a ring of ``stages`` turns each; they add up through shared memory. ``registers`` a thread: as many as
    leave room for the next launch. ``late``: it may begin once the last loads of this one have been asked for, so that
    it takes no bandwidth from them.
    """

    tokens: int
    channels: int
    depth: int
    stages: int
    fill: int
    crews: int = 1
    registers: int = 128
    late: bool = False


#: Tile of ``stream``, None where tokens are too many.
STREAM = TABLE.maybe("stream", Stream, SIZES, upto="M")

#: For up to so many tokens: channels, depth, stages, fill and crews to try; more do not fit shared memory.
_TRIED = {
    8: ((128, 1, 2, 1, 4), (128, 1, 3, 1, 4), (64, 1, 3, 1, 4), (64, 2, 2, 1, 4), (64, 2, 4, 1, 2), (128, 1, 5, 2, 1)),
    16: (
        (128, 1, 2, 1, 4),
        (128, 1, 3, 1, 4),
        (64, 1, 3, 1, 4),
        (64, 2, 4, 1, 2),
        (128, 1, 3, 2, 2),
        (128, 1, 5, 2, 1),
    ),
    32: ((128, 1, 2, 1, 4), (64, 1, 3, 1, 4), (64, 1, 4, 2, 2), (128, 1, 3, 1, 2), (64, 1, 4, 3, 1), (128, 1, 5, 2, 1)),
}

#: More parts of K than this cost more in their sum than they gain.
LARGEST_SPLIT = 16


def streams_at(M: int, K: int, N: int, group: int | str) -> SearchSpace:
    """Streams of one crew or several; crews let the next launch begin late."""
    tokens = max(8, triton.next_power_of_2(M))
    streams = [Stream(tokens, *shape, late=shape[-1] > 1) for shape in _TRIED.get(tokens, ())]
    return offer("stream", streams, M, K, N, group)


def parts_of(stream: Stream, k_tiles: int, N: int, device: torch.device) -> int:
    """In how many parts K is cut: equal ones of whole turns."""
    most = min(LARGEST_SPLIT, stream.fill * sm_count(device) // triton.cdiv(N, stream.channels))
    turns = triton.cdiv(k_tiles, stream.depth * stream.crews)
    return max((parts for parts in range(1, most + 1) if turns % parts == 0), default=1)
