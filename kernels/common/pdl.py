"""Programmatic dependent launch (PDL): a launch starts on the multiprocessors that the launch ahead has left.

A launch that reads what the launch ahead writes waits for it first; any other launch waits last. So whatever has ended
has all launches before it ended too. A launch that waits last may read what the last but one wrote, if the last one
waited first.
"""

# Triton's compiler types a kernel's parameters at each launch; Python's annotations would say nothing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

#: When a launch waits for the launch ahead: never (no PDL), before it reads anything, before it ends.
NEVER, FIRST, LAST = 0, 1, 2


def order_of(tensor: torch.Tensor, follows: bool) -> int:
    """Return when a launch waits; ``follows``: it reads what the launch ahead writes."""
    if tensor.device.type == "cpu":
        return NEVER
    return FIRST if follows else LAST


def launch_options(order: int) -> dict[str, bool]:
    """Return Triton's options for a launch that waits as ``order`` says, or that uses PDL (True) or not (False).

    The option is left out where there is no PDL: only Hopper and Blackwell accept it.
    """
    return {"launch_pdl": True} if order else {}


@triton.jit
def begin(ORDER: tl.constexpr):
    """Wait if the launch waits first; call it before any memory is read."""
    if ORDER == 1:
        gdc_wait()
    if ORDER > 0:
        gdc_launch_dependents()


@triton.jit
def end(ORDER: tl.constexpr):
    """Wait if the launch waits last; call it last."""
    if ORDER == 2:
        gdc_wait()
