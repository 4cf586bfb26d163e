"""Compute the exact quantities of a case: numbers that follow from a trace and a compiler, without a GPU."""

from __future__ import annotations

from lockstep.machine_code.model import CaseCode


def exact_quantities(code: CaseCode) -> dict[str, int]:
    """Return the exact quantities of a call (``lockstep.record.quantity.EXACT``) by name, such as launches, registers.

    There are none if the trace may lack steps, if the variant refuses the case, and for an autotuned call, because only
    a GPU shows which configuration runs. Quantities of machine code require that all kernels of the call are compiled.
    """
    call = code.call
    if call is None or any(step.startswith("tunes ") for step in code.host):
        return {}
    kernels = code.kernels[call.first : call.last]
    quantities = {
        "launches": len(kernels) + call.operators,
        "allocations": call.allocations,
        "memory": call.peak,
        "kept": call.kept,
    }
    machines = [kernel.machine for kernel in dict.fromkeys(kernels) if kernel.machine is not None]
    if not kernels or len(machines) < len(set(kernels)):
        return quantities
    return quantities | {
        "registers": max(machine.registers for machine in machines),
        "spills": max(machine.spill_bytes for machine in machines),
        "shared": max(machine.shared_bytes for machine in machines),
        "instructions": sum(machine.mix.get("all", 0) for machine in machines),
    }
