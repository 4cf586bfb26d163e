"""Flags by which programs of one ``kda`` launch wait for each other.

Reading the weights is nearly all of the work, so latency is what can be saved: one launch instead of two, and f and g
load their weights before f_a and g_a are ready. The programs of one launch have roles, by rising program id:

1. rows of f_a and g_a, in the smallest tiles so that they end first; each raises a flag once its part is stored;
2. rows of q, k, v and beta, most of the bytes;
3. rows of f and g: they load their weights, then spin until the flag of their half is complete.

Programs start in the order of their ids, and a role waits only for lower ids, so every spin ends. Triton's interpreter
runs programs one after another and never spins.

Flags and tickets are counters in a small buffer, one for each device, and are zero when the kernel ends. Launches on
one stream follow each other; two streams must not decode on one device at the same time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.common.devices import capability
from kernels.common.workspace import once_per_device

#: Counters of a device: two flags, one exit count, then one ticket for each tile.
COUNTERS = 1024


@once_per_device
def counters_of(device: torch.device) -> torch.Tensor:
    """Return the device's counters: zero before and after every launch."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)


@triton.jit
def raise_flag(flag):
    """Add one to a flag, after all stores of this program are visible to other programs."""
    # The release orders only the stores of this thread. The barrier orders the other threads' stores before the
    # release.
    tl.debug_barrier()
    tl.atomic_add(flag, 1, sem="release", scope="gpu")


@triton.jit
def await_flag(flag, wanted):
    """Spin until ``wanted`` programs have raised the flag."""
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="gpu")
    while seen < wanted:
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="gpu")


@triton.jit
def leave(counters, programs):
    """Reset the flags, in the last of ``programs`` to call this: all others have passed the flags by then."""
    tl.debug_barrier()
    if tl.atomic_add(counters + 2, 1, sem="acq_rel", scope="gpu") == programs - 1:
        tl.store(counters, 0)
        tl.store(counters + 1, 0)
        tl.store(counters + 2, 0)


def overlap(x: torch.Tensor) -> dict[str, bool]:
    """Return options that let a launch start while the preceding kernel runs; off if the GPU of ``x`` cannot."""
    overlap = capability(x.device) >= (9, 0)
    return {"PDL": overlap, "launch_pdl": overlap} if overlap else {"PDL": False}
