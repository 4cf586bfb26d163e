"""A script that times the cases of suites, with warm caches. Its argument is a file with ``SuitePoints``.

Two releases that one process cannot hold run it in a process each (``lockstep.scripts.gate_suites``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from lockstep.processes.worker import read_as
from lockstep.scripts.plan import SuitePoints
from lockstep.suite.checkout import CheckoutFinder
from lockstep.suite.definition import Suite
from lockstep.suite.discovery import load_suites
from lockstep.suite.evaluate import buffers_of, inputs_of
from lockstep.suite.inputs import Draw
from lockstep.suite.variants import load_family, takes_out
from lockstep.timing.arms.bound_arms import BoundCall

#: Seed of inputs.
_SEED = 17


def points_of(choice: SuitePoints) -> Iterator[tuple[str, Callable[[], BoundCall]]]:
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


if __name__ == "__main__":
    POINTS = list(points_of(read_as(SuitePoints, Path(sys.argv[1]).read_text(encoding="utf-8"))))
