"""Record the launches of Triton kernels instead of running them, without a GPU.

This module patches Triton's (3.5 to 3.9) ``JITFunction.run``, ``JITFunction._do_compile`` and ``Autotuner.run``, but
importing it changes nothing.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.simulated_target import stand_in
from lockstep.machine_code.tracing.trace_listener import Listener, heard_by

#: Attributes that decide when and how an autotuner measures.
_DECIDING = ("keys", "reset_to_zero", "restore_value", "num_warmups", "num_reps", "use_cuda_graph", "configs_top_k")


@dataclass(frozen=True, eq=False)
class Request:
    """A request to compile: a kernel specialised for its arguments, with options, for a target."""

    function: Any
    source: Any
    options: Any
    target: Target

    def __getattr__(self, name: str) -> Any:
        """Make the trace untrusted: a compiled kernel's attributes are not known, because traces do not compile."""
        Listener.distrust(f"asks a compiled kernel for {name}")
        raise AttributeError(name)


#: Receives a launch: the request to compile, the grid, and the arguments in order, without those that are constants.
Note = Callable[[Request, tuple[int, ...], tuple[Any, ...]], None]


def settings(configuration: Any) -> str:
    """Return what a configuration of a tuned kernel sets, as "BLOCK 64, num_warps 8, …"."""
    texts = [f"{name} {value}" for name, value in configuration.all_kwargs().items()]
    hook = configuration.pre_hook
    return ", ".join([*texts, *([f"hook {hook.__name__}"] if inspect.isfunction(hook) else [])])


@contextlib.contextmanager
def noted(target: Target, note: Note) -> Iterator[None]:
    """Pass each launch of a Triton kernel within the block to ``note``, instead of compiling and launching the kernel.

    An autotuned kernel is launched with each of its configurations, because only a GPU shows which of them is fastest.
    After the block Triton still behaves as if ``target`` were present.
    """
    # Imported here: Triton is slow to import.
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    run, do_compile, tune = JITFunction.run, JITFunction._do_compile, Autotuner.run

    def note_request(
        self: Any, key: Any, signature: Any, device: int, constexprs: Any, options: Any, attrs: Any, warmup: bool
    ) -> Request:
        request = Request(self, self.ASTSource(self, signature, constexprs, attrs), options, target)
        self.device_caches[device][0][key] = request
        return request

    def note_launch(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        request = run(self, *args, grid=grid, warmup=True, **kwargs)
        if not warmup:
            bound = self.device_caches[target.arch][-1](*args, **kwargs)[0]
            shape = grid(bound) if callable(grid) else grid
            constant = {parameter.name for parameter in self.params if parameter.is_constexpr}
            arguments = tuple(value for name, value in bound.items() if name not in constant)
            note(request, tuple(int(size) for size in shape), arguments)
        return request

    def launch_all(self: Any, *args: Any, **kwargs: Any) -> Any:
        configurations = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
        if len(configurations) > 1:
            deciding = ", ".join(f"{name}={getattr(self, name, None)}" for name in _DECIDING)
            Listener.step(f"tunes kernel={getattr(self.base_fn, '__name__', '')}, {deciding}")
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        for configuration in configurations:
            if configuration.pre_hook is not None:
                configuration.pre_hook({**self.nargs, **kwargs, **configuration.all_kwargs()})
            with heard_by(configuration=settings(configuration)):
                request = self.fn.run(*args, **kwargs, **configuration.all_kwargs())
        self.nargs = None
        return request

    JITFunction.run, JITFunction._do_compile, Autotuner.run = note_launch, note_request, launch_all
    stand_in(target)
    try:
        yield
    finally:
        JITFunction.run, JITFunction._do_compile, Autotuner.run = run, do_compile, tune
