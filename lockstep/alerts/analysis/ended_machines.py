"""Find machines that are no longer measured for a reason that concerns them all, so that one line can say it.

A continuous-integration service gives each runner a new host name, which asv takes for the machine's name. An
environment or operating system of a machine is replaced by another. Neither is a machine that stopped reporting.
"""

from __future__ import annotations

import itertools
import string
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.alerts.analysis.stopped_series import SILENT_DAYS, day_of
from lockstep.history.machine_identity import hardware
from lockstep.history.snapshot import Results

#: Number of machines of equal hardware from which they count as runners with new names.
_MANY = 3

_DAY_MS = 86_400_000

#: Number of machines that a sentence names.
_NAMED = 3


@dataclass(frozen=True)
class EndedMachines:
    """Machines that are no longer measured.

    Attributes:
        once: machines of equal hardware that reported one after another, each for less than a week, by hardware.
        replaced: the day on which each environment or operating system that was replaced reported last, by machine.
        outlived: environments and operating systems whose machine reported later. If the machine is silent, its newest
            environment says so.
    """

    once: tuple[tuple[str, ...], ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    outlived: frozenset[str] = frozenset()

    @property
    def machines(self) -> frozenset[str]:
        """The names of all these machines."""
        return frozenset(self.replaced).union(*self.once)

    def sentences(self) -> list[str]:
        """Return a sentence about the machines that reported once, and one about what was replaced; no full stops."""
        said = []
        if self.once:
            names = [name for alike in self.once for name in alike]
            kinds = "equal hardware" if len(self.once) == 1 else f"{len(self.once)} kinds of hardware"
            letters = itertools.takewhile(lambda at: len(set(at)) == 1, zip(*names, strict=False))
            common = "".join(letter for letter, *_ in letters).rstrip(string.digits) or "RUNNER-"
            said.append(
                f"{len(names)} machines of {kinds} reported for less than a week each ({_listed(names)}): if runners "
                "get a new host name each time, give them one name, by `asv machine --machine NAME` before `asv run`, "
                f'or by [[same]] machine = "NAME", was = ["{common}*"] in thresholds.toml'
            )
        if self.replaced:
            names = [f"{name} since {day}" for name, day in self.replaced.items()]
            if len(names) == 1:
                said.append(f"1 environment or system is no longer measured, though its machine is: {names[0]}")
            else:
                subject = f"{len(names)} environments or systems are"
                said.append(f"{subject} no longer measured, though their machines are: {_listed(names)}")
        return said


def ended_machines(results: Results) -> EndedMachines:
    """Return the machines that reported once and are alike, and the environments and systems that were replaced."""
    times: dict[str, list[int]] = defaultdict(list)
    for run in results.runs:
        if run.measured_at and not results.machines[run.machine].branch:
            times[run.machine].append(run.measured_at)
    first = {name: min(at) for name, at in times.items()}
    last = {name: max(at) for name, at in times.items()}
    of_folder: dict[str, list[str]] = defaultdict(list)
    for machine in results.machines.values():
        of_folder[machine.folder].append(machine.name)
    replaced: dict[str, str] = {}
    outlived: set[str] = set()
    alike: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for name in sorted(first, key=lambda name: (first[name], name)):
        machine = results.machines[name]
        others = [last[other] for other in of_folder[machine.folder] if other in last]
        if max(others) > last[name]:
            outlived.add(name)
        if max(others) - last[name] >= SILENT_DAYS * _DAY_MS:
            replaced[name] = day_of(last[name])
        elif len(others) == 1 and last[name] - first[name] < SILENT_DAYS * _DAY_MS:
            alike[tuple(sorted(hardware(machine.strings).items()))].append(name)
    # Machines of a fleet that began this week report at the same time.
    runners = [names for names in alike.values() if last[names[-1]] - min(map(last.__getitem__, names)) >= _DAY_MS]
    return EndedMachines(tuple(tuple(names) for names in runners if len(names) >= _MANY), replaced, frozenset(outlived))


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} … {names[-1]}"
