"""Workspaces: buffers that outlive a call, one per device, for example counters that every launch leaves at zero.

One buffer serves all calls on a device, because calls must not overlap (each kernel says so). The buffer stays in L2
from call to call. The buffer's address affects the time: base and head of an unchanged ``split_k`` with separate
buffers differed by up to 2.8 % (H200, free clocks, M = 8, warm; docs/measuring.md). So the buffers are public: the
harness moves them, and lets both sides of a comparison share them. A family's module names ``BUFFERS`` as its
``SCRATCH``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from kernels.common.devices import capturing

#: Every buffer, by the name of the function that made it and the device.
BUFFERS: dict[tuple[str, torch.device], Tensor] = {}


def once_per_device(make: Callable[[torch.device], Tensor]) -> Callable[[torch.device], Tensor]:
    """Return a function that calls ``make`` once for each device and then returns the same buffer.

    Raises:
        RuntimeError: the first call for a device is captured in a CUDA graph. Only the graph's first replay would fill
            the buffer, so any earlier kernel would count from garbage, or hang.
    """
    name = f"{make.__module__}.{make.__qualname__}"

    @functools.wraps(make)
    def buffer_of(device: torch.device) -> Tensor:
        if (name, device) not in BUFFERS:
            if capturing(device):
                raise RuntimeError(
                    f"call the kernel once before capturing it in a CUDA graph: the graph would own the buffer "
                    f"of {name}"
                )
            BUFFERS[name, device] = make(device)
        return BUFFERS[name, device]

    return buffer_of
