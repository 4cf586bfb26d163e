"""Tile configs of ``kernels.w4a16.stream_kernel``, and their search space."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from kernels.common.devices import sm_count
from kernels.common.tables import SearchSpace
from kernels.w4a16.table import SIZES, TABLE, search_space


class Stream(NamedTuple):
    """Tile config of ``stream``: ``tokens`` × ``channels`` (64 or 128) for each program.

    K is split into as many parts as ``fill`` programs for each multiprocessor allow. A program has 1, 2 or 4 ``crews``
    of four warps. The crews take iterations of ``depth`` · 128 rows of K in turn, each with its own ring of ``stages``
    iterations, and add up through shared memory. A thread gets at most ``registers`` registers, so that programs of the
    next launch fit beside this one. With ``late`` the next launch begins only after the last loads of this launch have
    been requested, so that it takes no bandwidth from these loads.
    """

    tokens: int
    channels: int
    depth: int
    stages: int
    fill: int
    crews: int = 1
    registers: int = 128
    late: bool = False


#: Tile config of ``stream``; None if there are too many tokens.
STREAM = TABLE.maybe("stream", Stream, SIZES, upto="M", derived="codes")

#: Channels, depth, stages, fill and crews to try, by the largest number of tokens. Larger tiles exceed shared memory.
_TRIED = {
    8: (
        (128, 1, 2, 1, 4),
        (128, 1, 3, 1, 4),
        (64, 1, 2, 1, 4),
        (64, 1, 3, 1, 4),
        (64, 2, 2, 1, 4),
        (64, 2, 4, 1, 2),
        (128, 1, 5, 2, 1),
    ),
    16: (
        (128, 1, 2, 1, 4),
        (128, 1, 3, 1, 4),
        (64, 1, 3, 1, 4),
        (64, 2, 4, 1, 2),
        (128, 1, 3, 2, 2),
        (128, 1, 5, 2, 1),
    ),
    32: (
        (128, 1, 2, 1, 4),
        (64, 1, 2, 1, 4),
        (64, 1, 3, 1, 4),
        (64, 1, 4, 2, 2),
        (128, 1, 3, 1, 2),
        (64, 1, 4, 3, 1),
        (128, 1, 5, 2, 1),
    ),
}

#: Maximum parts of K: adding more parts costs more time than they save.
LARGEST_SPLIT = 16


def streams_at(M: int, K: int, N: int, group: int | str) -> SearchSpace:
    """Return the tile configs that ``lockstep tune`` tries: one crew, or several with ``late``."""
    tokens = max(8, triton.next_power_of_2(M))
    streams = [Stream(tokens, *shape, late=shape[-1] > 1) for shape in _TRIED.get(tokens, ())]
    return search_space("stream", streams, M, K, N, group)


def parts_of(stream: Stream, k_tiles: int, N: int, device: torch.device) -> int:
    """Return into how many equal parts of whole iterations K is split: the most that ``stream.fill`` allows."""
    limit = min(LARGEST_SPLIT, stream.fill * sm_count(device) // triton.cdiv(N, stream.channels))
    turns = triton.cdiv(k_tiles, stream.depth * stream.crews)
    return max((parts for parts in range(1, limit + 1) if turns % parts == 0), default=1)
