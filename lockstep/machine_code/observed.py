"""Record which machine code was loaded and launched while a variant was measured.

The kernels are those that the GPU's driver loaded. What static tools found when the kernels were compiled ahead
(instructions, the host side) is added. Anything unavailable is left out: a measurement never fails for lack of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.machine_code.compiling.cubin import fingerprint
from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.record.model import Code, Kernel


class Observer:
    """Records which kernels each case launches while it is measured, and returns their code for the case's records.

    ``known``: the cases' code as traced and compiled without a GPU; adds instruction counts and the host side.
    """

    def __init__(self, known: Mapping[CaseKey, CaseCode] | None = None) -> None:
        self._known = known or {}
        kernels = (kernel for code in self._known.values() for kernel in code.kernels)
        self._machines = {kernel.fingerprint: kernel.machine for kernel in kernels if kernel.machine}
        self._launched: dict[CaseKey, list[Any]] = {}
        self._kernels: dict[str, Kernel | None] = {}
        self._apart = False

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Record no launch within the block, in which a tuner tries configurations."""
        self._apart = True
        try:
            yield
        finally:
            self._apart = False

    @contextlib.contextmanager
    def watch(self, key: CaseKey) -> Iterator[None]:
        """Record the kernels that are launched within the block, for this case."""
        try:
            from triton.runtime.jit import JITFunction
        except ImportError:
            yield
            return
        launched: list[Any] = []
        self._launched[key] = launched
        run, observer = JITFunction.run, self

        def note(self: Any, *args: Any, **kwargs: Any) -> Any:
            kernel = run(self, *args, **kwargs)
            if not observer._apart:
                launched.append(kernel)
            return kernel

        JITFunction.run = note
        try:
            yield
        finally:
            JITFunction.run = run

    def code(self, key: CaseKey) -> Code | None:
        """Return the kernels and the host side that ran in a watched case; None if neither is known."""
        if key not in self._launched:
            return None
        kernels = list(dict.fromkeys(kernel for launch in self._launched[key] if (kernel := self._kernel(launch))))
        traced = self._known.get(key)
        # If trace and run launched the same kernels, both took the same branches.
        agree = traced and {kernel.fingerprint for kernel in traced.kernels} == {kernel.code for kernel in kernels}
        host = traced.host_fingerprint if traced and agree else ""
        return Code(tuple(kernels), host) if kernels or host else None

    def _kernel(self, compiled: Any) -> Kernel | None:
        """Return the record of a compiled kernel; None if it has no cubin (interpreted, or for another maker's GPU)."""
        identity = str(getattr(compiled, "hash", ""))
        if identity not in self._kernels:
            try:
                self._kernels[identity] = self._read(compiled, fingerprint(compiled.asm, compiled.metadata))
            except (AttributeError, KeyError, TypeError, ValueError, IndexError):
                self._kernels[identity] = None
        return self._kernels[identity]

    def _read(self, compiled: Any, code: str) -> Kernel:
        metadata, registers, spills = compiled.metadata, *(getattr(compiled, n, None) for n in ("n_regs", "n_spills"))
        # Triton's n_spills is the driver's bytes of local memory divided by 4, the size of a register.
        figures = registers, None if spills is None else 4 * spills, int(metadata.shared)
        machine = self._machines.get(code)
        options = (getattr(metadata, name, None) for name in ("num_warps", "num_stages"))
        return Kernel(str(metadata.name), code, *figures, machine.mix if machine else {}, *options)
