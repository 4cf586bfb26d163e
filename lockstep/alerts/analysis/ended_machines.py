"""Find machines whose names are no longer measured because another name took their place.

A continuous-integration service gives each runner a new host name, which asv takes for the machine's name. An
environment or operating system of a machine is replaced by another.
"""

from __future__ import annotations

import itertools
import string
from collections import defaultdict
from dataclasses import dataclass

from lockstep.alerts.analysis.stopped_series import SILENT_DAYS
from lockstep.history.machine_identity import hardware
from lockstep.history.snapshot import Results

#: Number of machines of equal hardware from which they count as runners with new names.
_MANY = 3

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class EndedMachines:
    """Machines that are no longer measured.

    Attributes:
        runners: machines of equal hardware that reported one after another, each for less than a week.
        outlived: environments and operating systems whose machine reported later. If the machine is silent, its newest
            environment says so.
        replaced: those of them whose machine reported a week later.
    """

    runners: tuple[str, ...] = ()
    outlived: frozenset[str] = frozenset()
    replaced: tuple[str, ...] = ()

    @property
    def machines(self) -> frozenset[str]:
        """The names of all these machines."""
        return self.outlived.union(self.runners)

    def sentences(self) -> list[str]:
        """Return a sentence about the runners, and one about what was replaced; no full stops."""
        said = []
        if self.runners:
            letters = itertools.takewhile(lambda at: len(set(at)) == 1, zip(*self.runners, strict=False))
            common = "".join(letter for letter, *_ in letters).rstrip(string.digits) or "RUNNER-"
            said.append(
                f"{len(self.runners)} machines with the hardware of others reported for less than a week each "
                f"({self.runners[0]} … {self.runners[-1]}): if runners get a new host name each time, give them one "
                'name, by `asv machine --machine NAME` before `asv run`, or by [[same]] machine = "NAME", '
                f'was = ["{common}*"] in thresholds.toml'
            )
        if self.replaced:
            said.append(f"environments or systems that are not measured any more: {', '.join(self.replaced)}")
        return said


def ended_machines(results: Results) -> EndedMachines:
    """Return the runners that reported once and are alike, and the environments and systems that were replaced."""
    times: dict[str, list[int]] = defaultdict(list)
    for run in results.runs:
        if run.measured_at and not results.machines[run.machine].branch:
            times[run.machine].append(run.measured_at)
    last = {name: max(at) for name, at in times.items()}
    names_of_folder: dict[str, list[str]] = defaultdict(list)
    for name in sorted(times, key=lambda name: (min(times[name]), name)):
        names_of_folder[results.machines[name].folder].append(name)
    outlived: set[str] = set()
    replaced: list[str] = []
    alike: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for names in names_of_folder.values():
        newest = max(last[name] for name in names)
        outlived.update(name for name in names if last[name] < newest)
        replaced += [name for name in names if newest - last[name] >= SILENT_DAYS * _DAY_MS]
        if len(names) == 1 and newest - min(times[names[0]]) < SILENT_DAYS * _DAY_MS:
            alike[tuple(sorted(hardware(results.machines[names[0]].strings).items()))].append(names[0])
    # Machines of a fleet that began this week report at the same time.
    runners = (
        names
        for names in alike.values()
        if len(names) >= _MANY and last[names[-1]] - min(map(last.__getitem__, names)) >= _DAY_MS
    )
    return EndedMachines(tuple(itertools.chain(*runners)), frozenset(outlived), tuple(replaced))
