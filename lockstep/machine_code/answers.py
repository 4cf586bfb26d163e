"""What the code under test hears where it asks about its GPU: the target's answers, or a doubt.

Tensors are on "meta" here and have no content. To the code under test they are on the target: ``device`` is
``cuda:0``, ``is_cuda`` is true, and what is created on "cuda" comes on "meta". Torch's own code hears the truth.
``torch.cuda`` answers from the target's table. A question that the table has no answer to is left to torch: ``watch``
notes it, and the case is unknown.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from lockstep.machine_code.contents import made_by
from lockstep.machine_code.targets import Target

#: The one GPU that there is.
CUDA = torch.device("cuda", 0)
META = torch.device("meta")

#: Packages that hear the truth about a tensor.
_INSIDERS = ("torch", "lockstep", "numpy")


class _Listener:
    """Who hears of doubts, steps and addresses now."""

    doubt: Callable[[str], None] = staticmethod(lambda reason: None)
    step: Callable[[str], None] = staticmethod(lambda step: None)
    place: Callable[[torch.Tensor], int] | None = None
    capturing = False


class Properties:
    """``torch.cuda.get_device_properties`` of the target; asking for what its table lacks is a doubt."""

    def __init__(self, target: Target) -> None:
        self.__dict__.update(target.properties())

    def __getattr__(self, name: str) -> Any:
        _Listener.doubt(f"asks for the device property {name}, which the target's table lacks")
        raise AttributeError(name)

    def __repr__(self) -> str:
        _Listener.doubt("prints the device's properties, which the target's table has only in part")
        return "_CudaDeviceProperties()"


@contextlib.contextmanager
def heard_by(
    doubt: Callable[[str], None], step: Callable[[str], None], place: Callable[[torch.Tensor], int]
) -> Iterator[None]:
    """Within the block, who hears of doubts and of steps of the host, and who gives tensors their addresses."""
    former = _Listener.doubt, _Listener.step, _Listener.place
    _Listener.doubt, _Listener.step, _Listener.place = doubt, step, place
    try:
        yield
    finally:
        _Listener.doubt, _Listener.step, _Listener.place = former


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Within the block a CUDA graph is being captured, as in a measurement."""
    _Listener.capturing = True
    try:
        yield
    finally:
        _Listener.capturing = False


def answer_as(target: Target) -> None:
    """From now on, for the rest of the process, code hears the answers of ``target``. Call it once."""
    _answer_questions(target)
    _place_tensors()
    _create_on_meta()


def _answer_questions(target: Target) -> None:
    properties = Properties(target)
    cuda: Any = torch.cuda

    def known(device: Any) -> None:
        index = device if isinstance(device, int) else torch.device(device).index if device is not None else 0
        if index not in (None, 0, -1):
            raise AssertionError("Invalid device id")

    def get_device_properties(device: Any = None) -> Properties:
        known(device)
        return properties

    def get_device_capability(device: Any = None) -> tuple[int, int]:
        known(device)
        return target.arch // 10, target.arch % 10

    def get_device_name(device: Any = None) -> str:
        known(device)
        return str(properties.name)

    def synchronize(device: Any = None) -> None:
        _Listener.step("torch.cuda.synchronize()")

    def constant(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    cuda.get_device_properties, cuda.get_device_capability = get_device_properties, get_device_capability
    cuda.get_device_name, cuda.synchronize = get_device_name, synchronize
    cuda.is_available, cuda.is_initialized = constant(True), constant(True)
    cuda.device_count, cuda.current_device = constant(1), constant(0)
    cuda.is_bf16_supported = constant(True)  # since 8.0, the least that lockstep knows
    cuda.is_current_stream_capturing = lambda: _Listener.capturing
    cuda.init = cuda._lazy_init = constant(None)
    cuda.set_device = lambda device: known(device)
    cuda.device = cuda.device_of = _OneDevice
    torch.compile = _uncompiled


def _uncompiled(model: Any = None, **options: Any) -> Any:
    """``torch.compile`` without compiling: what it returns runs as written, and is a doubt."""
    if model is None:
        return lambda function: _uncompiled(function, **options)
    if not callable(model):
        raise TypeError("torch.compile takes a function or a module")

    def run(*args: Any, **kwargs: Any) -> Any:
        _Listener.doubt("runs what torch.compile makes of it, which is not traced")
        return model(*args, **kwargs)

    return run


class _OneDevice:
    """``torch.cuda.device``: there is but one to choose."""

    def __init__(self, device: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _outsider(depth: int = 2) -> bool:
    """Whether it is the code under test, or a package that it calls, that asks."""
    name = str(sys._getframe(depth).f_globals.get("__name__", ""))
    return name.partition(".")[0] not in _INSIDERS


def _place_tensors() -> None:
    base = torch._C.TensorBase
    tensor: Any = torch.Tensor
    device, is_cuda = base.device.__get__, base.is_cuda.__get__  # type: ignore[attr-defined]
    is_meta, data_ptr, get_device = base.is_meta.__get__, base.data_ptr, base.get_device  # type: ignore[attr-defined]

    def where(self: Any) -> Any:
        found = device(self)
        return CUDA if found == META and _outsider() else found

    def on_cuda(self: Any) -> bool:
        return bool(is_cuda(self) or (is_meta(self) and _outsider()))

    def on_meta(self: Any) -> bool:
        if is_meta(self) and _outsider():
            _Listener.doubt("asks whether a tensor is on meta, where none is on a GPU")
            return False
        return bool(is_meta(self))

    def address(self: Any) -> int:
        if _Listener.place is not None and is_meta(self):
            return _Listener.place(self)
        return int(data_ptr(self))

    def index(self: Any) -> int:
        return 0 if is_meta(self) and _outsider() else int(get_device(self))

    tensor.device, tensor.is_cuda, tensor.is_meta = property(where), property(on_cuda), property(on_meta)
    tensor.data_ptr, tensor.get_device = address, index


def _create_on_meta() -> None:
    """What is created on or sent to "cuda" comes on "meta"."""
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
            if not isinstance(data, torch.Tensor) and _outsider():
                content = data.tobytes() if hasattr(data, "tobytes") else repr(data).encode()
                _Listener.step(f"{function.__name__} of {hashlib.sha256(content).hexdigest()[:16]}")
                result = function(*(_meta_for(one) for one in arguments), **options)
                made_by(content, result)
                return result
        return function(*(_meta_for(one) for one in arguments), **options)

    return create


def _meta_for(value: Any) -> Any:
    if isinstance(value, torch.device):
        return META if value.type == "cuda" else value
    return META if isinstance(value, str) and value.partition(":")[0] == "cuda" else value
