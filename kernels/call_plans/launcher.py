"""Launch a compiled Triton kernel from addresses, without Triton's dispatch.

``kernel[grid](…)`` binds, types and hashes every argument, and encodes every tensor descriptor, at each launch.
``launch_text`` does this once. Its text calls the C function that Triton itself calls last, with the same arguments:
grid, stream, function, launch attributes and kernel arguments.

That C function differs between versions of Triton. ``KNOWN`` has the versions with which every family was compared,
launch by launch (``tests/kernels/call_plans/families.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import triton
from triton import knobs
from triton.runtime.jit import JITFunction

#: Versions of Triton whose launcher is known here.
KNOWN = ("3.6.0", "3.7.1")

#: Maximum number of encoded tensor descriptors that a launch keeps for each descriptor argument, one per address.
MOST_ENCODED = 128

#: Triton's own launch function. A tool that observes or traces launches replaces it.
RUN = JITFunction.run
_OWN = RUN.__module__ == JITFunction.__module__ and triton.__version__ in KNOWN


class Unsupported(Exception):
    """A call cannot have a plan; the message says why."""


class Place(NamedTuple):
    """A kernel argument that changes from call to call: ``offset`` bytes after the address of tensor ``root``.

    With ``descriptor``, the argument is that tensor descriptor, whose base has this address.
    """

    root: int
    offset: int
    descriptor: Any = None

    @property
    def text(self) -> str:
        """Return Python text for the address, where ``a`` has the addresses of a plan's tensors."""
        return f"a[{self.root}] + {self.offset}".removesuffix(" + 0")


def undisturbed() -> bool:
    """Return whether launches go to the GPU as Triton starts them: nothing traces, observes or hooks them."""
    if JITFunction.run is not RUN or not _OWN:
        return False
    runtime = knobs.runtime
    try:
        return not (runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls)
    except AttributeError:  # a hook was assigned in place of Triton's chain of hooks
        return False


def launch_text(compiled: Any, grid: Sequence[int], values: Mapping[str, Any], name: Callable[[Any], str]) -> str:
    """Return Python text that repeats a launch on ``stream``, where ``a`` has the addresses of a plan's tensors.

    Args:
        compiled: the compiled kernel that Triton's launch returned.
        values: the argument for every parameter of the kernel, by name: a number, a ``Place`` or None.
        name: returns the text for a value.

    Raises:
        Unsupported: the launcher of this version of Triton is not known, or the kernel needs more than its arguments.
    """
    arguments: list[str] = []
    encodings = list(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    for parameter, kind in compiled.src.signature.items():
        value = values[parameter]
        address = value.text if isinstance(value, Place) else ""
        if kind == "constexpr":
            arguments.append("None")
        elif address and value.descriptor is not None and encodings:
            encoded = _Encoded(value.descriptor, encodings.pop(0))
            arguments += [f"{name(encoded)}[{address}]", *map(name, encoded.sizes)]
        elif address and value.descriptor is None and str(kind).startswith("*"):
            arguments.append(address)
        elif type(value) in (bool, int, float):
            arguments.append(name(value))
        else:
            raise Unsupported(f"the argument {parameter} is a {type(value).__name__}, but the kernel takes {kind}")
    launch, head, one_list = _launcher(compiled)
    last = ", ".join(arguments)
    sizes = [int(size) for size in (*grid, 1, 1)[:3]]
    head = [*map(name, sizes), "stream", *map(name, head)]
    return f"{name(launch)}({', '.join(head)}, {f'[{last}]' if one_list else last})"


class _Encoded(dict[int, Any]):
    """The encodings of a tensor descriptor for addresses.

    They depend only on address, shape, strides and box, so they may outlive the memory.

    Attributes:
        sizes: the arguments that follow the descriptor.
    """

    def __init__(self, descriptor: Any, encoding: Any) -> None:
        self._encoding = encoding
        self._fields = {
            "shape": [int(size) for size in descriptor.shape],
            "strides": [int(stride) for stride in descriptor.strides],
            "padding": descriptor.padding,
            "round_f32_to_tf32": getattr(descriptor, "round_f32_to_tf32", False),
        }
        self.sizes = [*self._fields["shape"], *self._fields["strides"]]
        self[descriptor.base.data_ptr()]

    def __missing__(self, address: int) -> Any:
        # Imported here: only a GPU needs NVIDIA's backend.
        from triton.backends.nvidia.driver import make_tensordesc_arg

        if len(self) >= MOST_ENCODED:
            self.clear()
        base = SimpleNamespace(data_ptr=lambda: address)
        self[address], *expanded = make_tensordesc_arg(SimpleNamespace(base=base, **self._fields), self._encoding)
        if expanded != self.sizes:
            raise Unsupported(f"Triton expands a descriptor to {expanded}")
        return self[address]


def _launcher(compiled: Any) -> tuple[Callable[..., None], list[Any], bool]:
    """Return Triton's C function, its arguments between stream and kernel arguments, and whether these are one list."""
    run = compiled.run
    if run.global_scratch_size or run.profile_scratch_size:
        raise Unsupported(f"{compiled.name} needs scratch memory")
    launch = run.launch
    if isinstance(launch, FunctionType):  # Triton encodes descriptors in a closure around the C function
        launch = inspect.getclosurevars(launch).nonlocals["launcher"]
    if not isinstance(launch, BuiltinFunctionType):
        raise Unsupported(f"the launcher of Triton {triton.__version__} is not known")
    head = [compiled.function, run.launch_cooperative_grid, run.launch_pdl]
    # No scratch memory, no metadata for hooks, and no hooks: ``undisturbed`` has checked that there are none.
    if triton.__version__ == "3.6.0":
        return launch, [*head, None, None, compiled.packed_metadata, None, None, None], False
    return launch, [*head, compiled.packed_metadata, *[None] * 5, run.arg_annotations, run.kernel_signature], True
