"""Compile Triton kernels without launching them, on a machine with or without a GPU.

The real host function of a kernel is called on meta tensors (no memory, no arithmetic) while every
launch is turned into a compilation for a chosen target. Triton's disk cache is keyed by source,
signature, target and options, so the process that measures later finds what was compiled here.

Importing this module changes nothing; ``intercept`` replaces Triton's driver for the rest of the process,
so call it in a process of its own (``compile_in_subprocess`` does).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lockstep.machine_code.cubin import registers_and_stack


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

    from lockstep.machine_code.stand_in import stand_in
    from lockstep.machine_code.targets import Target

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
        ToolError: cuobjdump is missing or prints something else than expected.
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


def compile_in_subprocess(code: str, arch: int = 90, timeout: float = 120.0) -> list[CompiledKernel]:
    """Run ``code`` in a fresh Python with launches intercepted, and describe what it compiled.

    Args:
        code: Python statements that call kernels on meta tensors; ``torch`` is imported for them.
        arch: target, 90 for sm_90.
        timeout: seconds.

    Raises:
        RuntimeError: the code failed; the message ends with its traceback.
    """
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        program = (
            "import json, sys, torch\n"
            "from dataclasses import asdict\n"
            "from lockstep.compiling import describe, intercept\n"
            f"with intercept({arch}) as kernels:\n"
            + "".join(f"    {line}\n" for line in code.strip().splitlines())
            + f"json.dump([asdict(describe(kernel)) for kernel in kernels], open({answer.name!r}, 'w'))\n"
        )
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment["PYTHONPATH"] = os.pathsep.join(part for part in sys.path if part)
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"compiling for sm_{arch} failed:\n{done.stderr}")
        return [CompiledKernel(**row) for row in json.load(answer)]
