"""Programmatic dependent launch (PDL): a launch starts on multiprocessors that the preceding launch has left.

A launch waits for the preceding launch either before it reads any memory (FIRST), which it must if it reads what the
preceding launch writes, or before it ends (LAST). So when a launch has ended, all launches before it have ended too. A
launch that waits last may read what the launch two before it wrote, if the launch between them waited first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.common.devices import capability

#: When a launch waits for the preceding launch: never (no PDL), before it reads any memory, before it ends.
NEVER, FIRST, LAST = 0, 1, 2


def order_of(tensor: torch.Tensor, follows: bool) -> int:
    """Return when a launch waits: FIRST if it reads what the preceding launch writes (``follows``), else LAST.

    Without PDL, which NVIDIA's GPUs have from Hopper on, return NEVER.
    """
    if capability(tensor.device) < (9, 0):
        return NEVER
    return FIRST if follows else LAST


def launch_options(order: int | bool) -> dict[str, bool]:
    """Return Triton's options for a launch. Without PDL the option is left out, because GPUs before Hopper reject it.

    Args:
        order: NEVER, FIRST or LAST, or whether to use PDL.
    """
    return {"launch_pdl": True} if order else {}


@triton.jit
def begin(ORDER: tl.constexpr):
    """Let the next launch start; if ``ORDER`` is FIRST, wait for the preceding one. Call before reading any memory."""
    if ORDER == 1:
        gdc_wait()
    if ORDER > 0:
        gdc_launch_dependents()


@triton.jit
def end(ORDER: tl.constexpr):
    """If ``ORDER`` is LAST, wait for the preceding launch. Call this function at the end of the kernel."""
    if ORDER == 2:
        gdc_wait()
