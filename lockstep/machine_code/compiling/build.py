"""Identify and compile kernels whose launches were traced, in processes forked from the tracing process.

A request to compile holds Triton's own objects, which cannot be sent between processes; a forked process has copies.

All functions take distinct requests for one target, and start at most the given number of processes. They call ``beat``
after each task, to show that they go on.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import inspect
import math
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep.machine_code.compiling.cubin import fingerprint, mixes, registers_and_stack
from lockstep.machine_code.model import KernelCode, MachineCode
from lockstep.machine_code.targets import occupancy
from lockstep.machine_code.tracing.recorded_launches import Request
from lockstep.processes.end_with_parent import pool

#: Called after each task.
Beat = Callable[[], None]

#: Maximum number of kernels in one task.
BATCH = 4

#: Compile options of a kernel that reports show.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def identify(requests: Sequence[Request], tree: Path, processes: int, beat: Beat) -> list[KernelCode]:
    """Return the requested kernels, not compiled, with a digest of the compiler's input or the reason for none.

    ``tree`` is the folder of the sources: ``KernelCode.source`` is relative to it.
    """
    if requests:
        from triton.runtime.cache import triton_key

        triton_key()  # reads 0.3 GB; the processes that are forked now inherit the result
    identities = _spread(_identity, requests, processes, beat)
    return [_kernel(request, identity, tree) for request, identity in zip(requests, identities, strict=True)]


def _kernel(request: Request, identity: tuple[str, str] | Exception, tree: Path) -> KernelCode:
    options = {name: value for name in OPTIONS if (value := getattr(request.options, name, None)) is not None}
    name, source = request.source.name, _source(request.function, tree)
    if isinstance(identity, Exception):
        return KernelCode(name, f"broken {request.source.hash()}", source, options, failure=_first_line(identity))
    return KernelCode(name, identity[0], source, options, uninterpreted=identity[1])


def build(identified: Sequence[tuple[Request, KernelCode]], processes: int, beat: Beat) -> list[KernelCode]:
    """Return the kernels with their machine code, or with the reason why they do not compile."""
    requests = [request for request, _ in identified]
    built = _spread(_machine_code, requests, processes, beat)
    # All in one run: nvdisasm takes 0.35 s to start and almost no time for each kernel.
    cubins = [result[1] for result in built if not isinstance(result, Exception)]
    counts = iter(mixes(cubins, requests[0].target.arch) if cubins else [])
    return [
        replace(kernel, failure=_first_line(result))
        if isinstance(result, Exception)
        else replace(kernel, machine=replace(result[0], mix=next(counts)))
        for (_, kernel), result in zip(identified, built, strict=True)
    ]


def fill_cache(requests: Sequence[Request], processes: int) -> None:
    """Compile kernels into Triton's disk cache, so that launching them later takes no time to compile.

    Errors are ignored: the process that launches a kernel meets the same error and reports it.
    """
    _spread(_compile, requests, processes)


def compile_seconds(requests: Sequence[Request], repeats: int) -> list[list[float] | None]:
    """Return the seconds of each of ``repeats`` compilations of each kernel; ``None`` for one that does not compile.

    The seconds are those of the processor, in this process and in the assembler that it starts, so that other work on
    the machine adds little to them. The kernels are compiled one after another in one process, and never taken from
    Triton's cache. Neither imports nor the start of the compiler are included.
    """
    clocked = _spread(functools.partial(_clock, repeats), requests, 1, batch=len(requests))
    return [None if isinstance(seconds, Exception) else seconds for seconds in clocked]


def _clock(repeats: int, request: Request) -> list[float]:
    import triton

    triton.knobs.compilation.always_compile = True  # this process was forked to measure
    if request is _shared[0]:
        _attempt(_compile, request)  # starts the compiler
    seconds = []
    for _ in range(repeats):
        began = _cpu_seconds()
        _compile(request)
        seconds.append(_cpu_seconds() - began)
    return seconds


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return math.fsum(one.ru_utime + one.ru_stime for one in used)


def _compile(request: Request) -> None:
    from triton.compiler import compile as compile_kernel

    compile_kernel(request.source, target=request.target.for_triton(), options=request.options.__dict__)


def _identity(request: Request) -> tuple[str, str]:
    """Return a digest of the compiler's input (options, target, versions, intermediate code without line numbers), and
    why Triton's interpreter cannot run the kernel, or "".
    """
    import triton
    from triton._C.libtriton import get_cache_invalidating_env_vars, ir
    from triton.compiler.compiler import make_backend
    from triton.runtime.cache import triton_key

    target = request.target.for_triton()
    backend = make_backend(target)
    options = backend.parse_options({**request.options.__dict__, **request.source.parse_options()})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = request.source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    # Libraries by name only: the folder in which they are installed does not affect the code.
    chosen = {**options.__dict__, "extern_libs": [name for name, _ in getattr(options, "extern_libs", None) or ()]}
    # Triton's files, because two builds may have the same version.
    versions = [triton_key(), triton.__version__, backend.hash(), sorted(get_cache_invalidating_env_vars().items())]
    code = module.str_nodebug()
    digest = hashlib.sha256(code.encode())
    digest.update(repr([sorted(chosen.items()), str(target), versions]).encode())
    # The interpreter runs one program at a time: a loop that reads memory until another program writes it never ends.
    polls = "scf.while" in code and "isVolatile = true" in code
    uninterpreted = "Gluon" if request.function.is_gluon() else "waits for other programs" if polls else ""
    return digest.hexdigest()[:32], uninterpreted


def _machine_code(request: Request) -> tuple[MachineCode, bytes]:
    """Return the requested kernel's machine code without its instruction mix, and the cubin, which gives the mix."""
    from triton.compiler import compile as compile_kernel

    target = request.target.for_triton()
    kernel = compile_kernel(request.source, target=target, options=request.options.__dict__)
    cubin, metadata = kernel.asm["cubin"], kernel.metadata
    registers, stack = registers_and_stack(cubin)
    columns = getattr(metadata, "tmem_size", None) or 0
    fits = occupancy(request.target, metadata.num_warps, registers, metadata.shared, columns)
    machine = MachineCode(fingerprint(kernel.asm, metadata), registers, stack, metadata.shared, {}, *fits)
    return machine, cubin


def _source(function: Any, tree: Path) -> str:
    """Return where a kernel is defined: "kernels/linear/__init__.py:370", or only the file's name outside ``tree``."""
    path = Path(inspect.getsourcefile(function.fn) or "").resolve()
    name = path.relative_to(tree.resolve()) if path.is_relative_to(tree.resolve()) else path.name
    return f"{name}:{function.starting_line_number}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


#: Requests that forked processes inherit.
_shared: Sequence[Request] = ()


def _spread(
    function: Callable[[Request], Any],
    requests: Sequence[Request],
    processes: int,
    beat: Beat = lambda: None,
    batch: int = BATCH,
) -> list[Any]:
    """Return the result of ``function`` for each request, computed in batches in forked processes.

    Where the function fails or its process crashes, the result is an exception.
    """
    global _shared
    _shared = requests
    # Batches small enough that all processes have work until the end.
    batch = max(1, min(batch, -(-len(requests) // (2 * processes))))
    results: list[Any] = []
    spans = [(first, first + batch) for first in range(0, len(requests), batch)]
    with pool(max(1, min(processes, len(spans)))) as workers:
        tasks = [workers.submit(_task, function, *span) for span in spans]
        for _ in as_completed(tasks):
            beat()
        for (first, last), task in zip(spans, tasks, strict=True):
            try:
                results += task.result()
            except BrokenProcessPool:
                if len(requests) == 1:
                    results.append(RuntimeError("the process that compiled this kernel crashed"))
                else:
                    # One request in each process: a crash then affects only its own kernel.
                    results += [_spread(function, [request], 1, beat)[0] for request in requests[first:last]]
                    _shared = requests
    return results


def _task(function: Callable[[Request], Any], first: int, last: int) -> list[Any]:
    gc.disable()  # collections in a short-lived process find little, and copy the pages of its parent
    return [_attempt(function, request) for request in _shared[first:last]]


def _attempt(function: Callable[[Request], Any], request: Request) -> Any:
    """Return the result of ``function`` for a request; if the function raises, an exception that can be pickled."""
    try:
        return function(request)
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}")
