"""Show each run of a script the GPU memory that it allocated itself.

Scripts choose their shapes by the memory that a first call takes. The buffers of the other version's run must not
change that choice.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

_local = threading.local()

#: Functions of ``torch.cuda`` whose numbers include the memory of other runs.
_NAMES = ("memory_allocated", "max_memory_allocated")


def install() -> None:
    """Let the functions of ``torch.cuda`` leave out what ``leave_out`` was told in the same thread."""
    for name in _NAMES:
        shown = _shown(getattr(torch.cuda.memory, name))
        setattr(torch.cuda.memory, name, shown)
        setattr(torch.cuda, name, shown)


def leave_out(size: int) -> None:
    """Leave these bytes out of the numbers that the current thread gets."""
    _local.others = size


def allocated() -> int:
    """Return the bytes that tensors take on the current GPU; 0 without one."""
    if not torch.cuda.is_available():
        return 0
    return int(torch.cuda.memory_stats().get("allocated_bytes.all.current", 0))


def _shown(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> int:
        return max(0, original(*args, **kwargs) - getattr(_local, "others", 0))

    return function
