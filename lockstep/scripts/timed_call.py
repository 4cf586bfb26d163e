"""A call that a script hands to a timer: the closure, its names, and the state of the thread that made it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class CallKey:
    """The name of a timed call, equal in base and head.

    Attributes:
        case: the axes, such as "M=8,N=4096"; "" if the script states none.
        variant: the variant, such as "liger forward".
        number: 1 for the first call of this name, 2 for the second.
    """

    case: str
    variant: str
    number: int = 1

    @property
    def labels(self) -> tuple[str, str]:
        """Return case and variant as reports write them."""
        return self.case or "-", self.variant if self.number == 1 else f"{self.variant} #{self.number}"


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


def case_label(axes: Mapping[str, Any]) -> str:
    """Return axes as the label of a case: ``M=8,dtype=bfloat16``."""
    return ",".join(f"{name}={_text(value)}" for name, value in axes.items())


def _text(value: Any) -> str:
    return str(value).removeprefix("torch.").replace(",", ";").replace("\n", " ")[:60]
