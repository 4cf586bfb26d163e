"""Which machine code was loaded and launched while a variant was measured, for its record.

Kernels are those that the GPU's driver loaded; what the static tools know of them besides (instructions, the host
side) was found out when they were compiled ahead. Whatever cannot be had is left out: a measurement never fails for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.machine_code.cubin import fingerprint
from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.machine_code.reproducible_assembly import VARIES_FROM
from lockstep.record.model import Code, Kernel


class Observer:
    """Notes what each case launches, and tells it as a record's ``code``.

    Args:
        known: what was found out of this tree without a GPU.
    """

    def __init__(self, known: Mapping[CaseKey, CaseCode] | None = None) -> None:
        self._known = known or {}
        kernels = (kernel for code in self._known.values() for kernel in code.kernels)
        self._machines = {kernel.machine.loaded: kernel.machine for kernel in kernels if kernel.machine}
        self._launched: dict[CaseKey, list[Any]] = {}
        self._kernels: dict[str, Kernel | None] = {}

    @contextlib.contextmanager
    def watch(self, key: CaseKey) -> Iterator[None]:
        """Note the kernels that are launched within the block; they are this case's."""
        try:
            # Start-up: Triton is slow to import.
            from triton.runtime.jit import JITFunction
        except ImportError:
            yield
            return
        launched: list[Any] = []
        run = JITFunction.run

        def note(self: Any, *args: Any, **kwargs: Any) -> Any:
            kernel = run(self, *args, **kwargs)
            launched.append(kernel)
            return kernel

        JITFunction.run = note
        try:
            yield
        finally:
            JITFunction.run = run
            self._launched[key] = launched

    def code(self, key: CaseKey) -> Code | None:
        """What ran for a case that was watched; None if nothing is known of it."""
        if key not in self._launched:
            return None
        kernels = list(dict.fromkeys(kernel for one in self._launched[key] if (kernel := self._kernel(one))))
        traced = self._known.get(key)
        host = ""
        if traced is not None and {one.fingerprint for one in traced.kernels} == {one.code for one in kernels}:
            # Traced and run agree on the kernels, so the trace took the turns that the GPU's run took.
            host = traced.host_fingerprint
        return Code(tuple(kernels), host) if kernels or host else None

    def _kernel(self, compiled: Any) -> Kernel | None:
        identity = str(getattr(compiled, "hash", ""))
        if identity not in self._kernels:
            self._kernels[identity] = self._read(compiled)
        return self._kernels[identity]

    def _read(self, compiled: Any) -> Kernel | None:
        """One of Triton's compiled kernels; None if it is none that can be read (an interpreted one, another GPU's)."""
        try:
            loaded = fingerprint(compiled.asm["cubin"], compiled.metadata)
            name, shared = str(compiled.metadata.name), int(compiled.metadata.shared)
            stable = compiled.metadata.target.arch < VARIES_FROM
        except (AttributeError, KeyError, TypeError, ValueError, IndexError):
            return None
        registers, spills = getattr(compiled, "n_regs", None), getattr(compiled, "n_spills", None)
        # Triton's n_spills is the driver's bytes of local memory in registers of 4 bytes.
        spilled = None if spills is None else 4 * spills
        machine = self._machines.get(loaded)
        if machine is None:
            return Kernel(name, loaded if stable else "", registers, spilled, shared)
        return Kernel(name, machine.fingerprint, registers, spilled, shared, machine.mix)
