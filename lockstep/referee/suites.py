"""Problems that a suite defines: a suite of the benchmark folder, by name, or a class in a file."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from lockstep.referee.problem import Candidate, Problem, cache_state, chosen, function_in, import_file, member
from lockstep.referee.problem_definition import ProblemDefinition
from lockstep.suite.checkout import import_from
from lockstep.suite.definition import Suite, SuiteError
from lockstep.suite.discovery import is_suite, load_suites, nearest, pick_suites
from lockstep.suite.variants import Family, load_family
from lockstep.timing.device import Device


def suite_problem(source: ProblemDefinition, device: Device) -> Problem:
    """Return the problem of a suite; its incumbent is the baseline or the variant ``source.against``.

    A candidate is a function that takes inputs by name, and ``out`` if it writes into the suite's buffers. As in a
    module of variants, the candidate's file may have a dict ``PREPARE``, whose function for the candidate returns
    further arguments.

    Raises:
        SuiteError: the suite, a case or the variant does not exist.
    """
    if source.definition.partition(":")[0].endswith(".py"):
        suite = _suite_of_file(source.definition)
    else:
        suites = load_suites(Path(source.benchmarks))
        picked = pick_suites(suites, source.definition)
        if len(picked) > 1:
            raise SuiteError(
                f"family {source.definition} has several suites; name one of "
                f"{', '.join(suite.name for suite in picked)}"
            )
        [suite] = picked
        import_from(Path(source.checkout), source.packages)
    if source.tolerance is not None:
        vars(suite)["tolerance"] = source.tolerance
    family = load_family(suite) if suite.module or suite.adapters else Family({}, {})
    name = source.against or suite.baseline
    if source.against and name not in family.variants:
        raise SuiteError(f"suite {suite.name} has no variant {name!r}{nearest(name, family.variants)}")
    incumbent = Candidate(family.variants[name], family.prepare.get(name)) if name in family.variants else None
    return Problem(
        suite, chosen(source, suite, device), cache_state(source, device), _load, name, incumbent, family.scratch
    )


def _load(path: Path, name: str) -> Candidate:
    module = import_file(path)
    function = function_in(module, name)
    return Candidate(function, getattr(module, "PREPARE", {}).get(name or function.__name__))


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
