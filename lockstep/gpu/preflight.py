"""Look at a GPU before an unattended measurement: another process, or a halved clock, makes every number of it wrong.

Records tell what happens later: each has the temperature, and the reasons for a lower clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from lockstep.gpu.nvml import Gpu

#: Clock-event reasons by which the hardware halves the clock, because of heat or of the power supply.
_SLOWED = frozenset({"hardware slowdown", "hardware thermal", "power brake"})

#: Seconds for which the driver may list a process that has just ended.
_ENDING_S = 3.0

#: A GPU this close to the temperature at which it slows down is marked, in °C.
_MARGIN_C = 5


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Attributes:
        faults: why the GPU must not measure, as sentences without full stops.
        marks: what a reader of its numbers must know.
    """

    faults: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


def preflight(gpu: Gpu) -> Preflight:
    """Return the faults and marks of a GPU on which this process does not run yet."""
    health = gpu.health()
    until = time.monotonic() + _ENDING_S
    while health.processes and time.monotonic() < until:
        time.sleep(0.2)
        health = gpu.health()
    sample = gpu.sample()
    reasons = set(sample.reasons or ())
    faults = [f"process {pid} runs on it: {_command(pid)}" for pid in health.processes]
    faults += [f"its clock is lowered by {reason}" for reason in sorted(reasons & _SLOWED)]
    marks = ["its clock is lowered by heat"] if "thermal" in reasons else []
    if health.uncorrected:
        marks.append(f"its memory had {health.uncorrected} uncorrected errors (ECC) since the driver was loaded")
    if health.remap_pending:
        marks.append("a row of its memory waits to be replaced: reset the GPU")
    if health.margin_c is not None and health.margin_c <= _MARGIN_C:
        marks.append(f"at {sample.temperature_c} °C it is {health.margin_c} °C from slowing down")
    return Preflight(tuple(faults), tuple(marks))


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "not visible from here"
    return b" ".join(words).decode(errors="replace").strip()[:100] or "not visible from here"
