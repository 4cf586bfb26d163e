"""Compile Triton kernels without launching them, on a machine with or without a GPU.

The real host function of a kernel is called on meta tensors (no memory, no arithmetic); every launch becomes a
compilation for a chosen target. ``intercept`` replaces Triton's driver for the rest of the process, so call it in a
process of its own, as ``compile_in_subprocess`` does.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any

from lockstep.machine_code.compiling.cubin import _run, registers_and_stack
from lockstep.processes.end_with_parent import end_with_parent


@dataclass(frozen=True)
class CompiledKernel:
    """What the compiler says of one kernel: registers a thread, bytes of stack (spills) and shared memory."""

    name: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    num_warps: int
    num_stages: int


@contextlib.contextmanager
def intercept(arch: int) -> Iterator[list[Any]]:
    """Within the block Triton compiles for ``sm_<arch>`` and launches nothing; yields the compiled kernels.

    The kernels are Triton's own ``CompiledKernel`` objects (``.asm``, ``.metadata``), in launch order.
    """
    from triton.runtime.jit import JITFunction

    from lockstep.machine_code.targets import Target
    from lockstep.machine_code.tracing.simulated_target import stand_in

    compiled: list[Any] = []
    launch = JITFunction.run

    def compile_instead(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
        if kernel is not None and all(kernel.hash != known.hash for known in compiled):
            compiled.append(kernel)
        return kernel

    stand_in(Target.parse(f"sm_{arch}"))
    JITFunction.run = compile_instead
    try:
        yield compiled
    finally:
        JITFunction.run = launch


def describe(kernel: Any) -> CompiledKernel:
    """Read a compiled kernel's resources with ``cuobjdump -res-usage``, which travels in Triton's wheel.

    Raises:
        RuntimeError: cuobjdump is missing or prints something else than expected.
    """
    registers, stack = registers_and_stack(kernel.asm["cubin"])
    metadata = kernel.metadata
    return CompiledKernel(
        name=metadata.name,
        registers=registers,
        stack_bytes=stack,
        shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
    )


def disassemble(cubin: bytes) -> str:
    """Return the instructions of a cubin as text, as nvdisasm of Triton's wheel prints them."""
    return _run("nvdisasm", cubin, "-c")


def compile_in_subprocess(code: str, arch: int = 90, timeout: float = 280.0) -> list[CompiledKernel]:
    """Run ``code`` in a process of its own with launches intercepted, and describe what it compiled.

    The process is a fork of one that has torch and Triton imported already, which takes longer than most compilations.

    Args:
        code: Python statements that call kernels on meta tensors; they have ``torch``, and ``kernels`` as ``intercept``
            yields them.
        arch: target, 90 for sm_90.
        timeout: seconds; below pytest's own limit, so that the message names what took so long.

    Raises:
        RuntimeError: the code failed, and the message ends with its traceback; or it took too long, or died.
    """
    answers, answer = _importer().Pipe(duplex=False)
    process = _importer().Process(target=_compile, args=(code, arch, _compiler_environment(), answer), daemon=True)
    process.start()
    answer.close()
    try:
        if not answers.poll(timeout):
            raise RuntimeError(f"compiling for sm_{arch} took longer than {timeout:g} s")
        failure, kernels = answers.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"compiling for sm_{arch} ended its process, exit status {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if failure:
        raise RuntimeError(f"compiling for sm_{arch} failed:\n{failure}")
    found: list[CompiledKernel] = kernels
    return found


def _compile(code: str, arch: int, environment: Mapping[str, str], answer: Connection) -> None:
    end_with_parent(os.getppid())  # the server of forks, which ends with its own
    os.environ.clear()
    os.environ.update(environment)
    try:
        import torch

        with intercept(arch) as kernels:
            exec(code, {"torch": torch, "kernels": kernels})
        answer.send(("", [describe(kernel) for kernel in kernels]))
    except BaseException:
        answer.send((traceback.format_exc(), []))


def _compiler_environment() -> dict[str, str]:
    """This process's, but for Triton's interpreter, which would be compiled for instead."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


@functools.cache
def _importer() -> ForkServerContext:
    """Makes forks of a process that has imported what compiling takes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "triton", "lockstep.machine_code.compiling.cubin", "lockstep.machine_code.tracing.simulated_target"]
    )
    before = dict(os.environ)
    try:
        # Triton's own functions are for the interpreter, or not, from their import on.
        os.environ.pop("TRITON_INTERPRET", None)
        forkserver.ensure_running()
    finally:
        os.environ.update(before)
    return context
