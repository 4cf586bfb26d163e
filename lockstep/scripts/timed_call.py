"""A call that a script hands to a timer: the closure, its names, and the state of the thread that made it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from lockstep.scripts.call_names import CallKey


@dataclass(frozen=True)
class ThreadState:
    """The state of torch that belongs to a thread: whether gradients are on, autocast, and the default device."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    device: torch.device

    @classmethod
    def now(cls) -> ThreadState:
        """Return the state of the current thread."""
        kinds = [kind for kind in ("cuda", "cpu") if torch.is_autocast_enabled(kind)]
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            tuple((kind, torch.get_autocast_dtype(kind)) for kind in kinds),
            torch.get_default_device(),
        )

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Give the current thread this state within the block."""
        with ExitStack() as stack:
            if self.inference:
                stack.enter_context(torch.inference_mode())
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype))
            if self.device.type != "cpu":
                stack.enter_context(self.device)
            yield


@dataclass(frozen=True, eq=False)
class TimedCall:
    """A closure that a script hands to a timer at ``place`` (file:line); before each call it drops ``gradients``."""

    key: CallKey
    function: Callable[[], Any]
    place: tuple[str, int]
    gradients: Sequence[torch.Tensor] = ()
    state: ThreadState = field(default_factory=ThreadState.now)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def __call__(self) -> Any:
        """Call the closure in the context variables of the thread that timed it, Triton's allocator among them."""
        return self.context.run(self.function)

    def drop_gradients(self) -> None:
        """Drop the gradients that the last call left, as the timer would."""
        for tensor in self.gradients:
            tensor.grad = None
