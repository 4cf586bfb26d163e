"""Start a compiled Triton kernel from addresses, without Triton's dispatch.

``kernel[grid](…)`` binds, types and hashes every argument, and encodes every tensor descriptor, at each launch. A
``Start`` does this once. Its text then calls the C function that Triton itself calls last, with the same arguments:
grid, stream, function, launch attributes (programmatic dependent launch among them) and kernel arguments.

That C function differs between versions of Triton. ``Start`` supports the versions with which every family was
compared, launch by launch (``tests/kernels/call_plans/families.py``): 3.6.0 and 3.7.1. For any other version, and for
a kernel that needs more than its arguments (scratch memory, a hook), ``Start`` raises ``Unsupported``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import torch
import triton
from triton.runtime import driver
from triton.runtime.jit import JITFunction

#: Versions of Triton whose launcher is known here.
KNOWN = ("3.6.0", "3.7.1")

#: Maximum number of encoded tensor descriptors that a launch keeps for each descriptor argument, one per address.
MOST_ENCODED = 128

#: The result of a plan's function for a call with other facts, and for a call that must run as it is written.
OTHER, UNPLANNED = object(), object()

#: Types of the tensors that plans know.
TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})

#: Triton's own launch function. A tool that observes or traces launches replaces it.
_RUN = JITFunction.run
_OWN = _RUN.__module__ == JITFunction.__module__ and triton.__version__ in KNOWN


class Unsupported(Exception):
    """A launch needs a feature that ``Start`` does not support; the message names the feature."""


class Place(NamedTuple):
    """A kernel argument that changes from call to call: ``offset`` bytes after the call's address number ``root``."""

    root: int
    offset: int


class Described(NamedTuple):
    """A tensor descriptor whose base address, ``place``, changes from call to call."""

    place: Place
    descriptor: Any


def undisturbed() -> bool:
    """Return whether launches go to the GPU as Triton starts them: nothing traces, observes or hooks them."""
    return _OWN and JITFunction.run is _RUN and _unhooked()


def is_plain(kernel: Any) -> bool:
    """Return whether Triton's ``JITFunction.run`` alone launches a kernel, without autotuning or the interpreter."""
    return isinstance(kernel, JITFunction) and type(kernel).run is _RUN


def _unhooked() -> bool:
    # A function of its own, which a trace never calls: a trace cannot know Triton's knobs.
    runtime = triton.knobs.runtime
    try:
        return not (runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls)
    except AttributeError:  # a hook was assigned in place of Triton's chain of hooks
        return False


class Start:
    """A prepared launch that still needs only its addresses and its stream.

    Args:
        compiled: the compiled kernel that a launch by Triton returned.
        values: the argument for every parameter of the kernel, by name: a number, ``Place``, ``Described`` or None.

    Raises:
        Unsupported: this version of Triton is not supported, or the kernel needs more than its arguments.
    """

    __slots__ = ("_arguments", "_head", "_launch", "_one_list")

    def __init__(self, compiled: Any, grid: Sequence[int], values: dict[str, Any]) -> None:
        self._arguments: list[Any] = []
        try:
            self._bind(compiled, values)
            self._find_launcher(compiled, (*grid, 1, 1)[:3])
        except (AttributeError, KeyError, ImportError) as error:
            raise Unsupported(f"Triton {triton.__version__} is unknown: {type(error).__name__}: {error}") from error

    def _bind(self, compiled: Any, values: dict[str, Any]) -> None:
        encodings = list(getattr(compiled.metadata, "tensordesc_meta", None) or ())
        for name, kind in compiled.src.signature.items():
            value = values[name]
            if not isinstance(kind, str):
                raise Unsupported(f"the argument {name} is a tuple")
            if kind == "constexpr":
                self._arguments.append(None)
            elif kind.startswith("tensordesc"):
                self._describe(name, value, encodings.pop(0) if encodings else None)
            elif type(value) in ((Place,) if kind.startswith("*") else (bool, int, float)):
                self._arguments.append(value)
            else:
                raise Unsupported(f"the argument {name} is a {type(value).__name__}, but the kernel takes {kind}")

    def _describe(self, name: str, value: Any, encoding: Any) -> None:
        if not isinstance(value, Described) or encoding is None:
            raise Unsupported(f"the argument {name} is not a descriptor that the host encodes")
        # Imported here: only a GPU needs NVIDIA's backend.
        from triton.backends.nvidia.driver import make_tensordesc_arg

        descriptor = value.descriptor
        fields = {
            "shape": [int(size) for size in descriptor.shape],
            "strides": [int(stride) for stride in descriptor.strides],
            "padding": descriptor.padding,
            "round_f32_to_tf32": getattr(descriptor, "round_f32_to_tf32", False),
        }

        def encode(address: int) -> Any:
            base = SimpleNamespace(data_ptr=lambda: address)
            return make_tensordesc_arg(SimpleNamespace(base=base, **fields), encoding)

        first = descriptor.base.data_ptr()
        encoded, *sizes = encode(first)
        if sizes != [*fields["shape"], *fields["strides"]]:
            raise Unsupported(f"Triton expands the descriptor {name} to {sizes}")
        # An encoded descriptor depends only on address, shape, strides and box, so it may outlive the memory it
        # describes.
        known = {first: encoded}

        def find(address: int) -> Any:
            tensor_map = known.get(address)
            if tensor_map is None:
                if len(known) >= MOST_ENCODED:
                    known.clear()
                tensor_map = known[address] = encode(address)[0]
            return tensor_map

        self._arguments += [_Encoded(value.place, find), *sizes]

    def _find_launcher(self, compiled: Any, grid: Sequence[int]) -> None:
        run = compiled.run
        if run.global_scratch_size or run.profile_scratch_size:
            raise Unsupported(f"{compiled.name} needs scratch memory")
        launch = run.launch
        if isinstance(launch, FunctionType):  # Triton encodes descriptors in a closure around the C function
            launch = inspect.getclosurevars(launch).nonlocals["launcher"]
        if not _OWN or not isinstance(launch, BuiltinFunctionType):
            raise Unsupported(f"the launcher of Triton {triton.__version__} is not known")
        self._launch = launch
        head = [compiled.function, run.launch_cooperative_grid, run.launch_pdl]
        # No scratch memory, no metadata for hooks, and no hooks: ``undisturbed`` has checked that there are none.
        if triton.__version__ == "3.6.0":
            head += [None, None, compiled.packed_metadata, None, None, None]
            self._one_list = False
        else:
            head += [compiled.packed_metadata, *[None] * 5, run.arg_annotations, run.kernel_signature]
            self._one_list = True
        self._head = [int(size) for size in grid], head

    def text(self, name: Callable[[Any], str]) -> str:
        """Return Python text that makes the launch on ``stream``, where ``a0`` is the address of root 0 and so on.

        Args:
            name: returns the text for a value.
        """
        grid, head = self._head
        arguments = [_text(argument, name) for argument in self._arguments]
        if self._one_list:
            arguments = [f"[{', '.join(arguments)}]"]
        return f"{name(self._launch)}({', '.join([*map(str, grid), 'stream', *map(name, head), *arguments])})"


class _Encoded(NamedTuple):
    """A tensor descriptor at ``place``; ``find`` returns its encoding for an address."""

    place: Place
    find: Callable[[int], Any]


def _text(value: Any, name: Callable[[Any], str]) -> str:
    if isinstance(value, Place):
        return f"a{value.root} + {value.offset}" if value.offset else f"a{value.root}"
    return f"{name(value.find)}({_text(value.place, name)})" if isinstance(value, _Encoded) else name(value)


def _triton_device() -> int:
    device: int = driver.active.get_current_device()
    return device


def _triton_stream(device: int) -> int:
    stream: int = driver.active.get_current_stream(device)
    return stream


@functools.cache
def cuda_functions() -> tuple[Callable[[], int], Callable[[int], int]]:
    """Return two functions: the number of the current device, and the driver's handle of a device's current stream.

    torch's functions for CUDA are those that Triton's driver calls, the first without a look whether CUDA is
    initialised: plans have GPU tensors. They are not read on import, because a trace does not trust code that reads
    functions of ``torch._C``. A trace has no plans, so it never calls this function.
    """
    return (
        getattr(torch._C, "_cuda_getDevice", _triton_device),
        getattr(torch._C, "_cuda_getCurrentRawStream", _triton_stream),
    )
