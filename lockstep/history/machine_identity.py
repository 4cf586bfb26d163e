"""Decide which results belong to one machine, so that numbers of different hardware or environments are not mixed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.history.model import Run

#: Key under which asv's name of a machine is compared together with the machine's strings.
_NAMED = ""

#: Strings that do not identify a machine: the size of the memory changes by some kilobytes after a reboot.
_UNSTEADY = ("ram",)


@dataclass
class _Group:
    """Runs of one folder that share their machine strings, oldest commit first."""

    strings: dict[str, str] = field(default_factory=dict)
    runs: list[int] = field(default_factory=list)


def machine_names(runs: Sequence[Run], places: Mapping[str, int]) -> list[str]:
    """Return the name of the machine to which each run belongs.

    The machine of the oldest results in a folder has the folder's name. So a second operating system, processor or
    environment that appears later does not rename older results.

    Args:
        runs: the runs; ``machine`` is the name of the folder.
        places: the position of each commit in the history.
    """
    of_folder: dict[str, list[int]] = defaultdict(list)
    for index in sorted(range(len(runs)), key=lambda index: (places[runs[index].commit], runs[index].path)):
        of_folder[runs[index].machine].append(index)
    names = [""] * len(runs)
    used_names = set(of_folder)
    for folder in sorted(of_folder):
        groups = _groups(runs, of_folder[folder])
        for group in groups:
            for lane, environment in _lanes(runs, group.runs, places):
                first = group is groups[0] and lane[0] == groups[0].runs[0]
                differing = [] if group is groups[0] else _differing(group.strings, groups[0].strings)
                suffix = [] if lane[0] == group.runs[0] else [environment]
                name = folder if first else _unused_name(f"{folder} ({', '.join([*differing, *suffix])})", used_names)
                for index in lane:
                    names[index] = name
    return names


def _groups(runs: Sequence[Run], indices: Sequence[int]) -> list[_Group]:
    groups: list[_Group] = []
    for index in indices:
        run = runs[index]
        strings = hardware(run.strings)
        # If a folder holds files of two machines with equal hardware, only asv's name tells the machines apart.
        strings |= {_NAMED: run.named} if run.named else {}
        for group in groups:
            # A string that older runs lack does not make another machine.
            if all(group.strings.get(key, text) == text for key, text in strings.items()):
                break
        else:
            group = _Group()
            groups.append(group)
        group.strings |= strings
        group.runs.append(index)
    return groups


def hardware(strings: Mapping[str, str]) -> dict[str, str]:
    """Return the machine strings that identify a machine: its operating system, processor, GPU and so on."""
    return {key: _steady(key, text) for key, text in strings.items() if key not in _UNSTEADY}


def _steady(key: str, text: str) -> str:
    """Return a machine string without the part that changes from time to time, so that the machine stays the same.

    A security update, for example, changes the third part of the operating system's version.
    """
    version = re.match(r"\D*\d+(\.\d+)?", text) if key == "os" else None
    return version.group() if version else text


def _lanes(runs: Sequence[Run], indices: Sequence[int], places: Mapping[str, int]) -> list[tuple[list[int], str]]:
    """Group the runs of environments that replaced one another. Return each group with its first environment's name.

    An environment replaced another if all of its commits are later than all commits of the other.
    """
    of_environment: dict[str, list[int]] = defaultdict(list)
    for index in indices:
        of_environment[runs[index].environment].append(index)
    lanes: list[tuple[list[int], str]] = []
    for environment, run_indices in of_environment.items():
        begins = places[runs[run_indices[0]].commit]
        ended = [lane for lane, _ in lanes if places[runs[lane[-1]].commit] < begins]
        if ended:
            max(ended, key=lambda lane: places[runs[lane[-1]].commit]).extend(run_indices)
        else:
            lanes.append((list(run_indices), environment))
    return lanes


def _differing(strings: Mapping[str, str], other_strings: Mapping[str, str]) -> list[str]:
    keys = sorted(strings, key=lambda key: (key not in ("os", "cpu", "gpu"), key))
    return [strings[key] for key in keys if strings[key] != other_strings.get(key)][:3]


def _unused_name(name: str, used_names: set[str]) -> str:
    free, number = name, 1
    while free in used_names:
        number += 1
        free = f"{name} {number}"
    used_names.add(free)
    return free
