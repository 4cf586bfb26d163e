"""What a worker of a script does, as data that travels on its command line."""

from __future__ import annotations

import ast
import fnmatch
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.gate.model import SeriesKey

BASE, HEAD = "base", "head"

#: The script that times the cases of suites; its argument is a file with ``SuitePoints``.
SUITE_SCRIPT = Path(__file__).resolve().with_name("timers") / "suites.py"

#: Seconds that a call needs for a verdict, about: checks, captures, and the least number of epochs.
LEAST_S = 2.0


@dataclass(frozen=True)
class Side:
    """One version: the folder that holds its packages, and its copy of the script."""

    root: str
    file: str


@dataclass(frozen=True)
class SuitePoints:
    """What ``SUITE_SCRIPT`` times: ``points`` (suite, variant, case) of the ``packages`` in a tree's ``root``."""

    benchmark_dir: Path
    root: Path
    packages: tuple[str, ...]
    points: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Plan:
    """A script and what to do with its timed calls.

    Attributes:
        suite: name of the script in results.
        sides: "head" alone to measure, or "base" and "head" to compare.
        packages, local: see ``lockstep.scripts.project.Project``.
        arguments: command line of the script.
        least_s: least seconds for a call.
        only_find: whether the script's calls are only listed.
        cases, variants: globs of the calls to take; empty for all.
        scratch: names of variables of the script whose contents after a call are no result.
        version: benchmark version of records.
        tuned: file of the choices of tuners; "" to hold choices for this run only.
        served: whether the worker waits at each call for requests (``lockstep.scripts.paired_run``).
        adopt: whether the smallest calls of each variant are written as source, in place of being measured.
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
    only_find: bool = False
    cases: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    version: str = ""
    tuned: str = ""
    adopt: bool = False
    served: bool = False

    def key(self, labels: tuple[str, str]) -> SeriesKey:
        """Return the key of a call; labels are its case and variant."""
        case, variant = labels
        return SeriesKey(self.suite, variant, case, "warm")

    def selected(self, labels: Sequence[tuple[str, str]]) -> list[int]:
        """Return the numbers of the calls that the globs select; labels are case and variant of each call."""
        return [
            number
            for number, (case, variant) in enumerate(labels)
            if _has_axes(case, self.cases) and _matches(variant, self.variants)
        ]

    def chosen(self, labels: Sequence[tuple[str, str]], done: Collection[int]) -> frozenset[int]:
        """Return the numbers of the calls to measure: as many as the budget allows, evenly spread over the script.

        ``done``: numbers of calls that need no measurement any more.
        """
        if self.only_find:
            return frozenset()
        left = [number for number in self.selected(labels) if number not in done]
        if self.adopt:
            return frozenset(left) & _smallest(labels)
        most = max(1, int(self.budget_s / self.least_s))
        if len(left) <= most:
            return frozenset(left)
        return frozenset(left[position * len(left) // most] for position in range(most))


def _matches(text: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(text, f"*{glob}*") for glob in globs)


def _has_axes(case: str, globs: Sequence[str]) -> bool:
    """Return whether a glob matches a case: parts ``name=value`` match whole axes, other texts a part of the label."""
    return not globs or any(
        all(
            any(fnmatch.fnmatchcase(axis, part) for axis in case.split(",")) if "=" in part else _matches(case, [part])
            for part in filter(None, glob.split(","))
        )
        for glob in globs
    )


def axes_of(label: str) -> dict[str, Any]:
    """Return the axes of a case's label, ``M=8,dtype=bfloat16``; names become names of Python."""
    axes: dict[str, Any] = {}
    for part in label.split(",") if "=" in label else []:
        name, _, text = part.partition("=")
        try:
            axes[re.sub(r"\W", "_", name)] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            axes[re.sub(r"\W", "_", name)] = text
    return axes or {"shape": "as in the script"}


def _smallest(labels: Sequence[tuple[str, str]]) -> frozenset[int]:
    """Return the smallest case of each variant, and the smallest with another value of each of its axes."""
    by_variant: dict[str, list[tuple[float, int, dict[str, Any]]]] = {}
    for number, (case, variant) in enumerate(labels):
        axes = axes_of(case)
        size = math.prod(abs(value) or 1 for value in axes.values() if isinstance(value, int | float))
        by_variant.setdefault(variant, []).append((size, number, axes))
    chosen: set[int] = set()
    for found in by_variant.values():
        (_, first, axes), *others = sorted(found, key=lambda one: one[:2])
        chosen |= {first, *(next((n for _, n, of in others if of.get(name) != axes[name]), first) for name in axes)}
    return frozenset(chosen)
