"""Launch a compiled Triton kernel from addresses, without Triton's dispatch.

``kernel[grid](…)`` binds, types and hashes every argument, and encodes every tensor descriptor, at each launch.
``prepare`` does this once. The function that it returns calls the C function that Triton itself calls last, with the
same arguments: grid, stream, function, launch attributes and kernel arguments.

That C function differs between versions of Triton. ``KNOWN`` has the versions with which every family was compared,
launch by launch (``tests/kernels/call_plans/families.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import triton
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


#: A launch that still needs the addresses of a plan's tensors, and the stream.
Launch = Callable[[Sequence[int], int], None]


def undisturbed() -> bool:
    """Return whether launches go to the GPU as Triton starts them: nothing traces, observes or hooks them."""
    return _OWN and JITFunction.run is RUN and _unhooked()


def _unhooked() -> bool:
    # A function of its own, which a trace never calls: a trace cannot know Triton's knobs.
    runtime = triton.knobs.runtime
    try:
        return not (runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls)
    except AttributeError:  # a hook was assigned in place of Triton's chain of hooks
        return False


def prepare(compiled: Any, grid: Sequence[int], values: Mapping[str, Any]) -> Launch:
    """Return a function that repeats a launch with other addresses on another stream.

    Args:
        compiled: the compiled kernel that Triton's launch returned.
        values: the argument for every parameter of the kernel, by name: a number, a ``Place`` or None.

    Raises:
        Unsupported: the launcher of this version of Triton is not known, or the kernel needs more than its arguments.
    """
    template: list[Any] = []
    pointers: list[tuple[int, int, int]] = []
    described: list[tuple[int, int, int, Callable[[int], Any]]] = []
    encodings = list(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    for name, kind in compiled.src.signature.items():
        value = values[name]
        if kind == "constexpr":
            template.append(None)
        elif isinstance(value, Place) and value.descriptor is not None and encodings:
            encode, sizes = _encoder(value.descriptor, encodings.pop(0))
            described.append((len(template), value.root, value.offset, encode))
            template += [None, *sizes]
        elif isinstance(value, Place) and value.descriptor is None and str(kind).startswith("*"):
            pointers.append((len(template), value.root, value.offset))
            template.append(None)
        elif type(value) in (bool, int, float):
            template.append(value)
        else:
            raise Unsupported(f"the argument {name} is a {type(value).__name__}, but the kernel takes {kind}")
    launch, head, one_list = _launcher(compiled)
    x, y, z = ([int(size) for size in grid] + [1, 1])[:3]

    def run(addresses: Sequence[int], stream: int) -> None:
        arguments = template.copy()
        for at, root, offset in pointers:
            arguments[at] = addresses[root] + offset
        for at, root, offset, encode in described:
            arguments[at] = encode(addresses[root] + offset)
        if one_list:
            launch(x, y, z, stream, *head, arguments)
        else:
            launch(x, y, z, stream, *head, *arguments)

    return run


def _encoder(descriptor: Any, encoding: Any) -> tuple[Callable[[int], Any], list[int]]:
    """Return a function that encodes a tensor descriptor for an address, and the sizes that follow the descriptor.

    An encoded descriptor depends only on address, shape, strides and box, so it may outlive the memory it describes.
    """
    # Imported here: only a GPU needs NVIDIA's backend.
    from triton.backends.nvidia.driver import make_tensordesc_arg

    fields = {
        "shape": [int(size) for size in descriptor.shape],
        "strides": [int(stride) for stride in descriptor.strides],
        "padding": descriptor.padding,
        "round_f32_to_tf32": getattr(descriptor, "round_f32_to_tf32", False),
    }
    sizes = [*fields["shape"], *fields["strides"]]
    known: dict[int, Any] = {}

    def encode(address: int) -> Any:
        encoded = known.get(address)
        if encoded is None:
            if len(known) >= MOST_ENCODED:
                known.clear()
            base = SimpleNamespace(data_ptr=lambda: address)
            encoded, *expanded = make_tensordesc_arg(SimpleNamespace(base=base, **fields), encoding)
            if expanded != sizes:
                raise Unsupported(f"Triton expands a descriptor to {expanded}")
            known[address] = encoded
        return encoded

    encode(descriptor.base.data_ptr())
    return encode, sizes


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
