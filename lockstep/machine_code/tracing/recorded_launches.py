"""Record the launches of Triton kernels instead of running them, without a GPU.

This module patches Triton's (3.5 to 3.9) ``JITFunction.run``, ``JITFunction._do_compile`` and ``Autotuner.run``, but
importing it changes nothing.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.machine_code.targets import Target
from lockstep.machine_code.tracing.simulated_target import stand_in
from lockstep.machine_code.tracing.trace_listener import Listener, heard_by
from lockstep.machine_code.tracing.tuner_runs import runs_replaced

#: Attributes that decide when and how an autotuner measures.
_DECIDING = ("keys", "reset_to_zero", "restore_value", "num_warmups", "num_reps", "use_cuda_graph", "configs_top_k")


#: Receives a launch: the request to compile, the grid, and the arguments in order, without those that are constants.
Note = Callable[["Request", tuple[int, ...], tuple[Any, ...]], None]


@dataclass(frozen=True, eq=False)
class Request:
    """A request to compile: a kernel specialised for its arguments, with options, for a target.

    To the code under test it is the compiled kernel, which launches with ``request[grid](*arguments)``. ``tuned``: if a
    tuner made the last launch, that of each configuration, by what it sets, with its grid.
    """

    function: Any
    source: Any
    options: Any
    target: Target
    tuned: dict[str, tuple[Request, tuple[int, ...]]] = field(default_factory=dict)

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        """Return what launches the kernel; if a tuner chose it, each configuration is launched."""

        def launch(*arguments: Any, **_: Any) -> None:
            parameters = self.function.params
            if len(arguments) == len(parameters):
                pairs = zip(parameters, arguments, strict=True)
                arguments = tuple(value for parameter, value in pairs if not parameter.is_constexpr)
            sizes = [int(size) for size in grid]
            while len(sizes) > 1 and sizes[-1] == 1:
                sizes.pop()  # a compiled kernel takes three sizes
            own = tuple(sizes)
            for configuration, (request, shape) in (self.tuned or {"": (self, own)}).items():
                with heard_by(configuration=configuration):
                    Listener.launch(request, own if request is self else shape, arguments)

        return launch

    def __getattr__(self, name: str) -> Any:
        """Make the trace untrusted: a compiled kernel's attributes are not known, because traces do not compile."""
        Listener.distrust(f"asks a compiled kernel for {name}")
        raise AttributeError(name)


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
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    run, do_compile, bench = JITFunction.run, JITFunction._do_compile, Autotuner._bench
    grids: dict[Request, tuple[int, ...]] = {}

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
            grids[request] = tuple(int(size) for size in shape)
            note(request, grids[request], arguments)
        return request

    def launch_all(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))  # pruning reads it
        configurations = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
        if len(configurations) > 1:
            deciding = ", ".join(f"{name}={getattr(self, name, None)}" for name in _DECIDING)
            Listener.step(f"tunes kernel={getattr(self.base_fn, '__name__', '')}, {deciding}")
        tuned: dict[str, tuple[Request, tuple[int, ...]]] = {}
        for configuration in configurations:
            self.best_config = configuration
            if configuration.pre_hook is not None:
                configuration.pre_hook({**self.nargs, **kwargs, **configuration.all_kwargs()})
            with heard_by(configuration=settings(configuration)):
                request = self.fn.run(*args, **kwargs, **configuration.all_kwargs())
            if request in grids:
                tuned[settings(configuration)] = request, grids[request]
        self.nargs = None
        if len(configurations) > 1 and isinstance(request, Request):
            request.tuned.update(tuned)
        return request

    def measures(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise _Measures

    def run_or_launch_all(kind: type[Any], own: Any) -> Any:
        """Let a tuner with a ``run`` of its own launch all configurations where it would measure them."""
        if kind is Autotuner:
            return launch_all

        def run_it(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return own(self, *args, **kwargs)
            except _Measures:
                return launch_all(self, *args, **kwargs)

        return run_it

    JITFunction.run, JITFunction._do_compile, Autotuner._bench = note_launch, note_request, measures
    stand_in(target)
    try:
        with runs_replaced(run_or_launch_all), heard_by(launch=note):
            yield
    finally:
        JITFunction.run, JITFunction._do_compile, Autotuner._bench = run, do_compile, bench


class _Measures(BaseException):
    """A tuner would measure now. Not an ``Exception``, because tuners skip configurations that raise one."""
