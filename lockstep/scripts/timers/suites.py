"""Lockstep's own suites: their cases with warm caches. This module is the script, of a file with ``SuitePoints``.

Two releases that one process cannot hold run it in a process each (``lockstep.scripts.gate_suites``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lockstep.processes.worker import read_as
from lockstep.scripts.plan import SUITE_SCRIPT, SuitePoints
from lockstep.scripts.taken_calls import Hook
from lockstep.suite.checkout import CheckoutFinder
from lockstep.suite.definition import Suite
from lockstep.suite.discovery import load_suites
from lockstep.suite.evaluate import buffers_of, inputs_of
from lockstep.suite.inputs import Draw
from lockstep.suite.variants import load_family, takes_out
from lockstep.timing.arms.bound_arms import BoundCall

MODULES = ("__main__",)

#: Seed of inputs.
_SEED = 17


def install(module: Any, hook: Hook) -> None:
    """Take the points of the script, if it is this one."""
    if Path(getattr(module, "__file__", "")).resolve() == SUITE_SCRIPT:
        for name, set_up in _points_of(read_as(SuitePoints, Path(sys.argv[1]).read_text(encoding="utf-8"))):
            hook.point(partial(_take, hook, set_up), name, {})


def _take(hook: Hook, set_up: Callable[[], BoundCall]) -> None:
    hook.take(set_up())


def _points_of(choice: SuitePoints) -> Iterator[tuple[str, Callable[[], BoundCall]]]:
    """Yield the name of each call, suite, variant and case, and a function that sets it up."""
    suites = load_suites(choice.benchmark_dir)
    if not any(isinstance(finder, CheckoutFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, CheckoutFinder(choice.root, choice.packages))
    for suite, variant, case in choice.points:
        yield f"{suite} {variant} {case}", partial(_set_up, suites[suite], variant, case)


def _set_up(suite: Suite, variant: str, label: str) -> BoundCall:
    family, case = load_family(suite), suite.case(label)
    new = Draw("cuda" if torch.cuda.is_available() else "cpu", _SEED)
    arguments, function = family.arguments(variant, inputs_of(suite, case, new)), family.variants[variant]
    if takes_out(function):
        arguments["out"] = buffers_of(suite, case, new)
    return BoundCall(function, arguments)
