"""Forward what the code under test does to the trace of the current case.

What is forwarded: reasons to distrust the trace, steps of the host side, and questions for tensor addresses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Listener:
    """The functions that now receive reasons to distrust the trace, steps of the trace, and requests for addresses."""

    distrust: Callable[[str], None] = staticmethod(lambda reason: None)
    step: Callable[[str], None] = staticmethod(lambda step: None)
    place: Callable[[torch.Tensor], int] | None = None
    capturing = False


@contextlib.contextmanager
def heard_by(
    distrust: Callable[[str], None], step: Callable[[str], None], place: Callable[[torch.Tensor], int] | None
) -> Iterator[None]:
    """Within the block, pass reasons to distrust the trace to ``distrust``, its steps to ``step``; ask ``place``."""
    former = Listener.distrust, Listener.step, Listener.place
    Listener.distrust, Listener.step, Listener.place = distrust, step, place
    try:
        yield
    finally:
        Listener.distrust, Listener.step, Listener.place = former


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Make ``is_current_stream_capturing`` true within the block, as while a CUDA graph is captured for measuring."""
    Listener.capturing = True
    try:
        yield
    finally:
        Listener.capturing = False
