"""Problems that a suite defines: a suite of the benchmark folder, by name, or a class in a file."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from lockstep.referee.problem import Candidate, Problem, chosen, function_in, import_file, member
from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.suite.checkout import import_from
from lockstep.suite.definition import Suite, SuiteError
from lockstep.suite.discovery import is_suite, load_suites
from lockstep.suite.selection import nearest, pick_suites
from lockstep.suite.variants import load_family
from lockstep.timing.device import Device


def suite_problem(source: ProblemDefinition, device: Device) -> Problem:
    """Return the problem of a suite; its incumbent is the baseline or the variant ``source.against``.

    A candidate is a function that takes inputs by name, and ``out`` if it writes into the suite's buffers. As in a
    module of variants, the candidate's file may have a dict ``PREPARE``, whose function for the candidate returns
    further arguments. A variant of a named suite is a candidate too. Raise ``SuiteError`` if the suite, a case or the
    variant does not exist.
    """
    if source.definition.partition(":")[0].endswith(".py"):
        suite = _suite_of_file(source.definition)
        readable: tuple[Path, ...] = (Path(source.definition.partition(":")[0]).resolve().parent,)
        variants = tuple(suite.adapters)
    else:
        benchmarks, checkout = Path(source.benchmarks), Path(source.checkout)
        picked = pick_suites(load_suites(benchmarks), source.definition)
        if len(picked) > 1:
            raise SuiteError(
                f"family {source.definition} has several suites; name one of "
                f"{', '.join(suite.name for suite in picked)}"
            )
        [suite] = picked
        readable = (benchmarks, *(found for name in source.packages for found in checkout.glob(f"{name}*")))
        variants = suite.variants()
    if source.tolerance is not None:
        vars(suite)["tolerance"] = source.tolerance
    name = source.against or suite.baseline
    if source.against and name not in variants:
        raise SuiteError(f"suite {suite.name} has no variant {name!r}{nearest(name, variants)}")
    # The incumbent need not be the baseline, and none is skipped.
    vars(suite)["skips"] = Suite.skips.__get__(suite)

    def load(submission: Submission | None) -> Candidate:
        if submission is None or not submission.path:
            if source.packages:
                import_from(Path(source.checkout), source.packages)
            variant, family = submission.function if submission else name, load_family(suite)
            return Candidate(family.variants[variant], family.prepare.get(variant), suite.inout)
        module = import_file(Path(submission.path))
        function = function_in(module, submission.function)
        prepare = getattr(module, "PREPARE", {}).get(submission.function or function.__name__)
        return Candidate(function, prepare, suite.inout)

    compares = type(suite).compare is not Suite.compare
    return Problem(suite, chosen(source, suite, device), load, name, compares=compares, readable=readable)


def _suite_of_file(definition: str) -> Suite:
    """Return the suite in ``FILE.py`` or ``FILE.py:CLASS``. The suite needs no baseline if an incumbent is named."""
    file, _, name = definition.partition(":")
    path = Path(file)
    sys.path.insert(0, str(path.resolve().parent))
    module = import_file(path)
    classes = {
        key: value for key, value in vars(module).items() if is_suite(value) and value.__module__ == module.__name__
    }
    if not name and len(classes) != 1:
        raise SuiteError(f"{path} has {len(classes)} suites; name one of them: {path.name}:CLASS")
    kind = member(module, name) if name else next(iter(classes.values()))
    if not is_suite(kind) or inspect.isabstract(kind):
        missing = ", ".join(sorted(getattr(kind, "__abstractmethods__", ()))) or "to be a class of suites"
        raise SuiteError(f"{path}: {kind.__name__} needs {missing}")
    defaults = {"baseline": "", "cases": (), "quick": (), "family": path.stem, "__module__": kind.__module__}
    members = {key: value for key, value in defaults.items() if not getattr(kind, key, None)} | {"family": path.stem}
    instance: Suite = type(kind.__name__, (kind,), {"__module__": kind.__module__} | members)()
    return instance
