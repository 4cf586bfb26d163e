"""Record the operations of torch that a call runs: they decide what torch's own functions do.

torch passes its functions structures of which it sets only a part, such as ``ReduceOp`` and ``OffsetCalculator``. The
rest is what the stack held before, so the parameters of two equal calls differ. The operations do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.machine_code.tracing.operators import OF_TORCH, python_kernel
from lockstep.same_work.values import values_digest
from lockstep.same_work.work import Fact, Node

#: Maximum bytes of a tensor on the host that count by their contents.
_MOST_HOST = 1 << 20

#: Arguments whose text says all about them.
_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


class Operations(TorchDispatchMode):
    """The operations of the calls within a ``with`` block, as nodes of a graph.

    Attributes:
        nodes: the operations that can give the GPU work, in order. A pointer to a tensor is a fact of eight bytes.
        known: whether they are all that happens: False after an operation of another library, or one of torch that has
            a Python function for the GPU. Operations within those are not recorded.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no annotation there
        self.nodes: list[Node] = []
        self.known = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and record it."""
        kwargs = kwargs or {}
        self.known &= getattr(func, "namespace", "") in OF_TORCH and python_kernel(func) is None
        before = [*_facts("argument", [*args, *kwargs.items()])]
        result = func(*args, **kwargs)
        if self.known and not func.is_view and not func.name().startswith("aten::empty"):
            facts = [("operation", func.name()), *before, *_facts("result", result)]
            self.known &= None not in facts
            self.nodes.append(Node("operation", tuple(filter(None, facts)), name=func.name()))
        return result


def _facts(name: str, value: Any) -> Iterator[tuple[str, Fact] | None]:
    """Yield the facts of an argument or a result by name; ``None`` for an object that is not understood."""
    if isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _facts(f"{name} {number}", part)
    elif isinstance(value, torch.Tensor):
        yield from _tensor(name, value)
    elif isinstance(value, torch.Generator):
        yield name, "generator"
    else:
        yield (name, f"{type(value).__name__} {value!r}") if isinstance(value, _PLAIN) else None


def _tensor(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, Fact] | None]:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        yield None
    elif tensor.device.type == "cpu":
        small = tensor.untyped_storage().nbytes() <= _MOST_HOST
        yield (name, values_digest(tensor)) if small else None
    else:
        flags = f"{'conj ' * tensor.is_conj()}{'neg ' * tensor.is_neg()}"
        yield f"{name} form", f"{flags}{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}"
        yield name, tensor.data_ptr().to_bytes(8, "little")
