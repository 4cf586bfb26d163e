"""Treat SIGTERM as Ctrl-C, so that a command that a runner cancels still reports what it has measured."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM within the block. Only the main thread can enter it."""
    former = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
