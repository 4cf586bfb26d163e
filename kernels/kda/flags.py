"""The flags by which programs of one ``kda`` launch wait for each other.

Reading the weights is nearly all of the work, so what is left to win is latency: one launch instead of two, and
no wait for f_a and g_a before f and g. The programs of one launch therefore have roles, by rising program id:

1. rows of f_a and g_a, cut finest so that they are done first; each raises a flag when its part is stored;
2. rows of q, k, v and beta, the bulk of the bytes;
3. rows of f and g: they load their weights, then spin until the flag of their half is complete.

Programs start in the order of their ids and a role waits only for lower ids, so the spin ends whatever else
runs on the GPU; Triton's interpreter, which runs them one after another, never spins.

Flags and tickets count in a small buffer kept for each device and are back at zero when the kernel ends. Launches
of one stream follow each other; two streams must not decode on one device at the same time.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.common.devices import capability
from kernels.common.workspace import once_per_device

#: Counters kept for each device: two flags, one exit count, then one ticket a tile.
COUNTERS = 1024


@once_per_device
def counters_of(device: torch.device) -> torch.Tensor:
    """The device's counters, zero before and after every launch."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)


@triton.jit
def raise_flag(flag):
    """Count this program in, once all that it stored can be read by the others."""
    # The release orders this thread's stores alone; the barrier puts the other threads' before it.
    tl.debug_barrier()
    tl.atomic_add(flag, 1, sem="release", scope="gpu")


@triton.jit
def await_flag(flag, wanted):
    """Spin until so many programs have raised the flag."""
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="gpu")
    while seen < wanted:
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="gpu")


@triton.jit
def leave(counters, programs):
    """The last program of role 3 puts the flags back: every other one has passed them."""
    tl.debug_barrier()
    if tl.atomic_add(counters + 2, 1, sem="acq_rel", scope="gpu") == programs - 1:
        tl.store(counters, 0)
        tl.store(counters + 1, 0)
        tl.store(counters + 2, 0)


def overlap(x: torch.Tensor) -> dict[str, bool]:
    """Programmatic dependent launch where there is one (Hopper on): start while the kernel before still runs."""
    overlap = capability(x.device) >= (9, 0)
    return {"PDL": overlap, "launch_pdl": overlap} if overlap else {"PDL": False}
