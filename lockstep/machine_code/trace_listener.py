"""Who hears what the code under test asks while a case is traced: doubts, steps of the host, addresses of tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


#: Code that stands between the code under test and what it asks; whoever looks for the asker looks through it.
TRANSPARENT: set[CodeType] = set()


class Listener:
    """Who hears of doubts, steps and addresses now."""

    doubt: Callable[[str], None] = staticmethod(lambda reason: None)
    step: Callable[[str], None] = staticmethod(lambda step: None)
    place: Callable[[torch.Tensor], int] | None = None
    capturing = False


@contextlib.contextmanager
def heard_by(
    doubt: Callable[[str], None], step: Callable[[str], None], place: Callable[[torch.Tensor], int]
) -> Iterator[None]:
    """Within the block, who hears of doubts and of steps of the host, and who gives tensors their addresses."""
    former = Listener.doubt, Listener.step, Listener.place
    Listener.doubt, Listener.step, Listener.place = doubt, step, place
    try:
        yield
    finally:
        Listener.doubt, Listener.step, Listener.place = former


@contextlib.contextmanager
def doubted_by(doubt: Callable[[str], None]) -> Iterator[None]:
    """Within the block, who hears of doubts; steps and addresses go where they went."""
    former, Listener.doubt = Listener.doubt, doubt
    try:
        yield
    finally:
        Listener.doubt = former


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Within the block a CUDA graph is being captured, as in a measurement."""
    Listener.capturing = True
    try:
        yield
    finally:
        Listener.capturing = False
