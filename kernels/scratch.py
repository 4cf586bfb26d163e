"""Buffers that kernels keep between calls, one a device: counters that are zero after every launch, mailboxes.

One serves all calls, because those must not overlap (each kernel says so), and stays in L2 from call to call, as a
library's workspace does. Where it lies shows in a time: base and head of an unchanged ``split_k`` differed by up to
2.8 % (an H200, M = 8, warm), each with counters of its own. So they are kept in the open, and whoever measures can
lay them elsewhere and let both sides of a comparison use the same ones: a family's module names ``KEPT`` as its
``SCRATCH``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from kernels.devices import capturing

#: What was made so far, by the name of the function that made it and by device.
KEPT: dict[tuple[str, torch.device], torch.Tensor] = {}


def kept(make: Callable[[torch.device], torch.Tensor]) -> Callable[[torch.device], torch.Tensor]:
    """``make``, called once a device.

    Raises:
        RuntimeError: the first call for a device is captured in a CUDA graph. What it fills there would be filled
            by the graph's first replay, and any kernel before that would count from garbage, or hang.
    """
    name = f"{make.__module__}.{make.__qualname__}"

    @functools.wraps(make)
    def of(device: torch.device) -> torch.Tensor:
        if (name, device) not in KEPT:
            if capturing(device):
                raise RuntimeError(
                    f"call the kernel once before capturing it in a CUDA graph: what {name} makes would be the graph's"
                )
            KEPT[name, device] = make(device)
        return KEPT[name, device]

    return of
