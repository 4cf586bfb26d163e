"""What a worker of a script does, as data that travels on its command line."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

BASE, HEAD = "base", "head"

#: Seconds that a call needs for a verdict, about: checks, captures, and the least number of epochs.
LEAST_S = 2.0


@dataclass(frozen=True)
class Side:
    """One version: the folder that holds its packages, and its copy of the script."""

    root: str
    file: str


@dataclass(frozen=True)
class Plan:
    """A script and what to do with its timed calls.

    Attributes:
        suite: name of the script in results.
        sides: "head" alone to measure, or "base" and "head" to compare.
        packages, local: see ``lockstep.scripts.project.Project``.
        arguments: command line of the script.
        budget_s: seconds for measuring.
        least_s: least seconds for a call.
        cases, variants: globs of the calls to take; empty for all.
        done: numbers of calls that an earlier worker has dealt with.
        version: benchmark version of records.
    """

    suite: str
    sides: Mapping[str, Side]
    packages: Sequence[str]
    local: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    budget_s: float = 120.0
    least_s: float = LEAST_S
    min_effect: float = 0.01
    confidence: float = 0.99
    seed: int = 0
    quick: bool = False
    measure_all: bool = False
    cases: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    done: tuple[int, ...] = field(default=())
    version: str = ""

    def write(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Plan:
        """Return the plan of ``write``."""
        row = json.loads(text)
        row["sides"] = {name: Side(**side) for name, side in row["sides"].items()}
        tuples = ("arguments", "cases", "variants", "done")
        return cls(**{**row, **{name: tuple(row[name]) for name in tuples}})

    def selected(self, labels: Sequence[tuple[str, str]]) -> list[int]:
        """Return the numbers of the calls that the globs select; labels are case and variant of each call."""
        return [
            number
            for number, (case, variant) in enumerate(labels)
            if _matches(case, self.cases) and _matches(variant, self.variants)
        ]

    def chosen(self, labels: Sequence[tuple[str, str]]) -> frozenset[int]:
        """Return the numbers of the calls to measure: as many as the budget allows, evenly spread over the script."""
        left = [number for number in self.selected(labels) if number not in self.done]
        most = max(1, int(self.budget_s / self.least_s))
        if len(left) <= most:
            return frozenset(left)
        return frozenset(left[position * len(left) // most] for position in range(most))


def _matches(text: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(text, f"*{glob}*") for glob in globs)
