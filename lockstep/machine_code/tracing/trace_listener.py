"""Forward what the code under test asks and does to the trace of the current case."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Listener:
    """The receivers of what the code under test does now; ``heard_by`` replaces them.

    Attributes:
        launch: receives launches of kernels that the code under test compiled before.
        place: returns the made-up address of a byte of a storage.
        configuration: what the configuration of the tuned kernel that is launched sets, or "".
        capturing: whether the call runs as while a CUDA graph is captured for measuring.
    """

    distrust: Callable[[str], None] = staticmethod(lambda reason: None)
    step: Callable[[str], None] = staticmethod(lambda step: None)
    launch: Callable[[Any, tuple[int, ...], tuple[Any, ...]], None] = staticmethod(lambda *_: None)
    place: Callable[[torch.UntypedStorage, int], int] | None = None
    configuration = ""
    capturing = False


@contextlib.contextmanager
def heard_by(**receivers: Any) -> Iterator[None]:
    """Replace these attributes of ``Listener`` within the block."""
    former = {name: getattr(Listener, name) for name in receivers}
    try:
        for name, receiver in receivers.items():
            setattr(Listener, name, receiver)
        yield
    finally:
        for name, receiver in former.items():
            setattr(Listener, name, receiver)
