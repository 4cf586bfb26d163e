"""Decide which folders hold one machine: by rules ``[[same]]``, and because they hold parts of one suite."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lockstep.history.cache_catalog import RunRow
from lockstep.history.machine_identity import hardware
from lockstep.history.series_ids import Ids
from lockstep.suite.thresholds import Same


@dataclass(frozen=True)
class Folders:
    """The machine of each folder.

    Attributes:
        machine: the name of the machine, by folder; folders that are not joined are left out.
        ruled: the rule by which each of these machines was joined, by the machine's name.
        refused: why rules were not applied, as sentences.
    """

    machine: Mapping[str, str] = field(default_factory=dict)
    ruled: Mapping[str, Same] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def of(self, folder: str) -> str:
        """Return the machine of a folder."""
        return self.machine.get(folder, folder)

    def apart(self, names: Mapping[str, str]) -> list[str]:
        """Return a sentence for each rule whose machines could not be joined completely.

        Args:
            names: the machine of each folder's machine, by the name that pages show.
        """
        said = []
        for name, rule in self.ruled.items():
            shown = sorted(shown for shown, folder in names.items() if folder == name)
            if len(shown) > 1:
                said.append(
                    f"{rule.where}: {', '.join(shown)} stay apart, because their hardware or environment differs "
                    "and they have points at the same commit"
                )
        return said


def joined_folders(
    rows: Sequence[RunRow], facts: Mapping[str, Mapping[str, Any]], layouts: Mapping[str, Ids], rules: Sequence[Same]
) -> Folders:
    """Return the machine of each folder that is not a machine of its own.

    Args:
        rows: the result files.
        facts: the decoded facts of a row, by their text.
        layouts: the numbers of the series in each layout.
        rules: the rules of thresholds.toml.
    """
    folders = {row.folder for row in rows}
    machine = _shards(rows, facts, layouts)
    ruled: dict[str, Same] = {}
    refused: list[str] = []
    for rule in rules:
        if rule.kind != "machine":
            continue
        old = [name for name in sorted(folders) if any(fnmatch.fnmatchcase(name, glob) for glob in rule.was)]
        if not old:
            refused.append(f"{rule.where}: was names no machine of these results: {', '.join(rule.was)}")
            continue
        machine |= dict.fromkeys((*old, rule.name), rule.name)
        ruled[rule.name] = rule
    return Folders(machine, ruled, tuple(refused))


def _shards(
    rows: Sequence[RunRow], facts: Mapping[str, Mapping[str, Any]], layouts: Mapping[str, Ids]
) -> dict[str, str]:
    """Return the machine of nested folders that hold parts of one suite.

    Their files name the same machine of equal hardware. They share a commit, and have no series in common at any.
    """
    nested: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, dict[str, list[Ids]]]] = defaultdict(dict)
    for row in rows:
        fact = facts[row.facts]
        named = str(fact.get("named", ""))
        if named:
            key = named, tuple(sorted(hardware(fact["strings"]).items()))
            nested[key].setdefault(row.folder, defaultdict(list))[row.commit].append(layouts[row.layout])
    machine: dict[str, str] = {}
    taken = {row.folder for row in rows}
    for (named, _), folders in nested.items():
        if len(folders) > 1 and any("/" in folder for folder in folders) and _are_parts(list(folders.values())):
            name = named if named not in taken - folders.keys() else min(folders, key=lambda one: (len(one), one))
            machine |= dict.fromkeys(folders, name)
    return machine


def _are_parts(folders: Sequence[Mapping[str, Sequence[Ids]]]) -> bool:
    """Return whether folders share a commit, and have no series in common at any. Each maps commits to layouts."""
    shared = False
    for commit in {commit for commits in folders for commit in commits}:
        series = [np.unique(np.concatenate(commits[commit])) for commits in folders if commit in commits]
        shared |= len(series) > 1
        together = np.concatenate(series)
        if len(np.unique(together)) < len(together):
            return False
    return shared
