"""Make tensors answer the code under test as if they were on the target.

Tensors are on "meta" and have no content. To the code under test they are on the target: ``device`` is ``cuda:0``,
``is_cuda`` is true, and what is created on "cuda" is created on "meta". Torch's own code gets the true answers.

A question whose answer on a GPU is not known leaves the case without a trace.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy
import torch

from lockstep.machine_code.tracing.trace_listener import Listener

#: The only GPU that the code under test sees.
CUDA = torch.device("cuda", 0)
META = torch.device("meta")

#: Bytes to which torch's allocator aligns storages on a GPU. Made-up addresses of two storages differ from this bit on.
ALIGNED = 512
_FAR = 40

#: Packages that get the true answers about a tensor, with their folders.
_INSIDERS = {
    "torch": f"{Path(str(torch.__file__)).parent}/",
    "numpy": f"{Path(str(numpy.__file__)).parent}/",
    "lockstep": f"{Path(__file__).parents[2]}/",
}


def answer_for_tensors() -> None:
    """Make tensors on "meta" report to code under test that they are on the target; call this function once."""
    _place()
    _create_on_meta()


def asked_by_code_under_test(depth: int = 2) -> bool:
    """Return whether the caller is the code under test, or a package that it calls."""
    frame = sys._getframe(depth)
    file = frame.f_code.co_filename
    if file.startswith("<"):  # code made at run time
        return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _INSIDERS
    return not file.startswith(tuple(_INSIDERS.values()))


def _place() -> None:
    base = torch._C.TensorBase
    tensor: Any = torch.Tensor
    device, is_cuda = base.device.__get__, base.is_cuda.__get__  # type: ignore[attr-defined]
    is_meta, data_ptr, get_device = base.is_meta.__get__, base.data_ptr, base.get_device  # type: ignore[attr-defined]
    cast, start_of = base.type, torch.UntypedStorage.data_ptr

    def simulated(self: Any) -> bool:
        """Return whether code under test asks about a tensor without memory."""
        return bool(is_meta(self)) and asked_by_code_under_test(3)

    def on_meta(self: Any) -> bool:
        if simulated(self):
            Listener.distrust("asks whether a tensor is on meta, which is false on a GPU")
            return False
        return bool(is_meta(self))

    def address(self: Any) -> int:
        if Listener.place is not None and is_meta(self):
            return Address(Listener.place(self.untyped_storage(), self.storage_offset() * self.element_size()))
        return int(data_ptr(self))

    def start(self: Any) -> int:
        if Listener.place is not None and self.device == META:
            return Address(Listener.place(self, 0))
        return int(start_of(self))

    def type_(self: Any, dtype: Any = None, *arguments: Any, **options: Any) -> Any:
        if not isinstance(dtype, torch.dtype) and asked_by_code_under_test():
            Listener.distrust("asks a tensor for the name of its type, which contains its device")
        return cast(self, dtype, *arguments, **options)

    tensor.device = property(lambda self: CUDA if simulated(self) else device(self))
    tensor.is_cuda = property(lambda self: bool(is_cuda(self)) or simulated(self))
    tensor.get_device = lambda self: 0 if simulated(self) else int(get_device(self))
    tensor.is_meta, tensor.data_ptr, tensor.type = property(on_meta), address, type_
    torch.UntypedStorage.data_ptr = start  # type: ignore[method-assign]


class Address(int):
    """The made-up address of a byte of a simulated tensor.

    On a GPU it is another number, with the same distance to other bytes of the tensor and the same remainder by
    ``ALIGNED``. Whatever else the code under test computes with it makes the trace untrusted.
    """

    def __add__(self, other: int) -> int:
        return Address(int.__add__(self, other))

    def __or__(self, other: int) -> int:
        return Address(int.__or__(self, other) | 1 << 2 * _FAR)  # lies in no storage

    __radd__, __ror__ = __add__, __or__

    def __sub__(self, other: int) -> int:
        return int.__sub__(self, other) if isinstance(other, Address) else Address(int.__sub__(self, other))

    __hash__ = int.__hash__


def _is_known(address: Address, operation: str, others: tuple[Any, ...]) -> bool:
    """Return whether the result of an operation on an address is the same on a GPU."""
    other = others[0] if others else None
    if isinstance(other, Address):
        return operation in ("eq", "ne") or address >> _FAR == other >> _FAR
    if operation == "mod":
        return isinstance(other, int) and other > 0 and ALIGNED % other == 0
    if operation in ("and", "rand"):
        return isinstance(other, int) and 0 <= other < ALIGNED
    return operation == "sub" or (operation in ("eq", "ne") and (other == 0 or not isinstance(other, int)))


def _guarded(operation: str, plain: Any) -> Any:
    def compute(self: Any, *others: Any) -> Any:
        if asked_by_code_under_test() and not _is_known(self, operation, others):
            Listener.distrust(f"computes with a tensor's address ({operation}), which is another one on a GPU")
        return plain(self, *others)

    return compute


for _operation in (
    *("mod", "rmod", "and", "rand", "xor", "rxor", "rshift", "lshift", "mul", "rmul", "sub", "rsub"),
    *("floordiv", "rfloordiv", "truediv", "rtruediv", "divmod", "pow", "neg", "invert", "int", "float"),
    *("lt", "le", "gt", "ge", "eq", "ne", "str", "repr", "format"),
):
    setattr(Address, f"__{_operation}__", _guarded(_operation, getattr(Address, f"__{_operation}__")))


def _create_on_meta() -> None:
    """Let torch create on "meta" each tensor that code under test creates on, or sends to, "cuda"."""
    from torch.utils._device import _device_constructors

    for function in _device_constructors():
        name = function.__name__
        if getattr(torch, name, None) is function:
            setattr(torch, name, _on_meta(function))
    tensor: Any = torch.Tensor
    for name in ("to", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided"):
        setattr(tensor, name, _on_meta(getattr(tensor, name)))
    to = tensor.to
    tensor.cuda = lambda self, *_, **__: to(self, META)


def _on_meta(function: Any) -> Any:
    @functools.wraps(function)
    def create(*arguments: Any, **options: Any) -> Any:
        if "device" in options:
            options["device"] = _meta_for(options["device"])
        if function.__name__ in ("tensor", "as_tensor"):
            data: Any = options.get("data", arguments[0] if arguments else None)
            if not isinstance(data, torch.Tensor) and asked_by_code_under_test():
                content = data.tobytes() if hasattr(data, "tobytes") else repr(data).encode()
                Listener.step(f"{function.__name__} of {hashlib.sha256(content).hexdigest()[:16]}")
        return function(*(_meta_for(argument) for argument in arguments), **options)

    return create


def _meta_for(value: Any) -> Any:
    if isinstance(value, torch.device):
        return META if value.type == "cuda" else value
    return META if isinstance(value, str) and value.partition(":")[0] == "cuda" else value
