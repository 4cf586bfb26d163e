"""Workspaces: buffers that kernels keep from call to call, one a device (counters that every launch leaves at zero).

One buffer serves all calls of a device, because those must not overlap (each kernel says so). It stays in L2 from call
to call, as a library's workspace does. Its address shows in a time: base and head of an unchanged ``split_k`` differed
by up to 2.8 % (an H200, M = 8, warm) with counters of their own. So the buffers are public: whoever measures can place
them elsewhere and let both sides of a comparison share them. A family's module names ``BUFFERS`` as its ``SCRATCH``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from kernels.common.devices import capturing

#: Every buffer, by the name of the function that made it and by device.
BUFFERS: dict[tuple[str, torch.device], torch.Tensor] = {}


def once_per_device(make: Callable[[torch.device], torch.Tensor]) -> Callable[[torch.device], torch.Tensor]:
    """Return ``make`` as a function that allocates once a device and then returns the same buffer.

    Raises:
        RuntimeError: the first call for a device is captured in a CUDA graph. What it fills there would be filled
            by the graph's first replay, and any kernel before that would count from garbage, or hang.
    """
    name = f"{make.__module__}.{make.__qualname__}"

    @functools.wraps(make)
    def of(device: torch.device) -> torch.Tensor:
        if (name, device) not in BUFFERS:
            if capturing(device):
                raise RuntimeError(
                    f"call the kernel once before capturing it in a CUDA graph: what {name} makes would be the graph's"
                )
            BUFFERS[name, device] = make(device)
        return BUFFERS[name, device]

    return of
