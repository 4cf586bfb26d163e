"""Decide which folders hold one machine, by the rules ``[[same]]`` of thresholds.toml."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lockstep.suite.thresholds import Same


@dataclass(frozen=True)
class Folders:
    """The machine of each folder.

    Attributes:
        machine: the name of the machine, by folder; folders that are not joined are left out.
        ruled: the rule by which each of these machines was joined, by the machine's name.
        refused: why rules were not applied, as sentences.
    """

    machine: Mapping[str, str]
    ruled: Mapping[str, Same]
    refused: tuple[str, ...]

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


def joined_folders(folders: Collection[str], rules: Sequence[Same]) -> Folders:
    """Return the machine of each folder that a rule of thresholds.toml joins with others."""
    machine: dict[str, str] = {}
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
