"""Decide which results belong to one machine. Results of different hardware or parallel environments never mix."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.history.model import Run

#: Key for asv's name of a machine among the machine's strings.
_NAMED = ""

#: asv's string that changes by some kilobytes after a reboot.
_UNSTEADY = ("ram",)


@dataclass
class _Group:
    """Runs of one folder whose machine strings agree, oldest commit first."""

    strings: dict[str, str] = field(default_factory=dict)
    runs: list[int] = field(default_factory=list)


def machine_names(runs: Sequence[Run], folders: Sequence[str], places: Mapping[str, int]) -> list[str]:
    """Return the machine name of each run.

    The oldest results of a folder keep the folder's name. So a second operating system, processor or environment that
    appears later does not rename older results.

    Args:
        runs: the runs; the field ``machine`` of a run is not read.
        folders: asv's machine name of each run.
        places: the position of each commit in the history.
    """
    of_folder: dict[str, list[int]] = defaultdict(list)
    for index in sorted(range(len(runs)), key=lambda index: (places[runs[index].commit], runs[index].path)):
        of_folder[folders[index]].append(index)
    names = [""] * len(runs)
    taken = set(of_folder)
    for folder in sorted(of_folder):
        groups = _groups(runs, of_folder[folder])
        for group in groups:
            for lane, environment in _lanes(runs, group.runs, places):
                first = group is groups[0] and lane[0] == groups[0].runs[0]
                differing = [] if group is groups[0] else _differing(group.strings, groups[0].strings)
                beside = [] if lane[0] == group.runs[0] else [environment]
                name = folder if first else _free(f"{folder} ({', '.join([*differing, *beside])})", taken)
                for index in lane:
                    names[index] = name
    return names


def _groups(runs: Sequence[Run], indices: Sequence[int]) -> list[_Group]:
    groups: list[_Group] = []
    for index in indices:
        run = runs[index]
        strings = {key: _steady(key, text) for key, text in run.strings.items() if key not in _UNSTEADY}
        # A folder may hold files of two machines with equal hardware. asv tells the machines apart by name.
        strings |= {_NAMED: run.named} if run.named else {}
        for group in groups:
            # A string that only newer runs have does not make another machine.
            if all(group.strings.get(key, text) == text for key, text in strings.items()):
                break
        else:
            group = _Group()
            groups.append(group)
        group.strings |= strings
        group.runs.append(index)
    return groups


def _steady(key: str, text: str) -> str:
    """Return the system and the first two parts of its version: a security update does not make another machine."""
    found = re.match(r"\D*\d+(\.\d+)?", text) if key == "os" else None
    return found.group() if found else text


def _lanes(runs: Sequence[Run], indices: Sequence[int], places: Mapping[str, int]) -> list[tuple[list[int], str]]:
    """Group runs whose environments followed one another. Return each group with the name of its first environment.

    An environment continues another if all of its commits are later than all commits of the other environment.
    """
    of_environment: dict[str, list[int]] = defaultdict(list)
    for index in indices:
        of_environment[runs[index].environment].append(index)
    lanes: list[tuple[list[int], str]] = []
    for environment, own in of_environment.items():
        begins = places[runs[own[0]].commit]
        ended = [lane for lane, _ in lanes if places[runs[lane[-1]].commit] < begins]
        if ended:
            max(ended, key=lambda lane: places[runs[lane[-1]].commit]).extend(own)
        else:
            lanes.append((list(own), environment))
    return lanes


def _differing(strings: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    keys = sorted(strings, key=lambda key: (key not in ("os", "cpu", "gpu"), key))
    return [strings[key] for key in keys if strings[key] != others.get(key)][:3]


def _free(name: str, taken: set[str]) -> str:
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name} {number}"
    taken.add(free)
    return free
