"""Compute the exact quantities of a case: numbers that follow from a trace and a compiler, without a GPU."""

from __future__ import annotations

import re

from lockstep.machine_code.model import CaseCode, KernelCode, MachineCode

#: A launch by Triton among the steps of a trace, including launches that only the first call makes.
_LAUNCH = re.compile(r"(first call: )?launch \[")
_OPERATOR = re.compile(r"\w+\.\w+\.\w+\(")


def exact_quantities(code: CaseCode) -> dict[str, int]:
    """Return the exact quantities of a call (``lockstep.record.quantity.EXACT``) by name, such as launches, registers.

    There are none if the trace may lack steps, if the variant refuses the case, and for an autotuned call, because only
    a GPU shows which configuration runs. Quantities of machine code require that all kernels of the call are compiled.
    """
    if code.memory is None or any(step.startswith("tunes ") for step in code.host):
        return {}
    kernels, operators = _of_call(code)
    quantities = {
        "launches": len(kernels) + operators,
        "allocations": code.memory.allocations,
        "memory": code.memory.peak,
        "kept": code.memory.kept,
    }
    machines = [kernel.machine for kernel in dict.fromkeys(kernels) if kernel.machine is not None]
    if not kernels or len(machines) < len(set(kernels)):
        return quantities
    return quantities | _of_machine_code(machines)


def _of_machine_code(machines: list[MachineCode]) -> dict[str, int]:
    return {
        "registers": max(machine.registers for machine in machines),
        "spills": max(machine.spill_bytes for machine in machines),
        "shared": max(machine.shared_bytes for machine in machines),
        "instructions": sum(machine.mix.get("all", 0) for machine in machines),
    }


def _of_call(code: CaseCode) -> tuple[list[KernelCode], int]:
    """Return the kernels that a call launches, without preparation and first call, and its number of operators."""
    kernels, operators, called = [], 0, False
    launched = iter(code.kernels)
    for step in code.host:
        called = called or step.startswith("given ")
        if of_first := _LAUNCH.match(step):
            kernel = next(launched)
            kernels += [kernel] if called and not of_first[1] else []
        elif called and _OPERATOR.match(step):
            operators += 1
    return kernels, operators
