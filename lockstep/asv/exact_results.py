"""Exact quantities (found by compiling) as asv's results: a benchmark for each suite and quantity, a file for each
commit and target.

asv's machine of these results is named after the target, ``sm_90-compiled``. Its description says nothing about the
computer that compiled, so any computer continues its series. A toolchain other than the installed one has a machine of
its own, ``sm_90-compiled@triton-3.6.0``, so that two toolchains compare as two machines do.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asv.machine import Machine
from asv.results import Results, get_filename
from asv.runner import BenchmarkResult
from asv.util import write_json

from lockstep.asv.undiscovered_benchmarks import add_entries
from lockstep.machine_code import CaseCode, CaseKey, Target
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts
from lockstep.machine_code.exact_quantities import exact_quantities
from lockstep.processes.toolchain import INSTALLED, Toolchain
from lockstep.record.file import SUFFIX, write_records
from lockstep.record.model import Provenance
from lockstep.record.quantity import EXACT, EXACT_TYPE, QUANTITIES, benchmark_name
from lockstep.suite.definition import PROTOCOL_VERSION, Suite
from lockstep.suite.evaluate import in_history

#: asv's name of the environment, the same as for ``lockstep run``.
ENVIRONMENT = "lockstep"


def machine_name(target: Target, toolchain: Toolchain) -> str:
    """Return the machine name of results for a target and a toolchain: "sm_90-compiled".

    For another than the installed toolchain the name includes Triton's version, and torch's if that differs too.
    """
    name = f"{target.name.replace(':', '-')}-compiled"
    if toolchain == INSTALLED:
        return name
    versions, installed = toolchain.versions(), INSTALLED.versions()
    named = ["triton", *(["torch"] if versions.get("torch") != installed.get("torch") else [])]
    return "@".join([name, *(f"{package}-{versions[package]}" for package in named if package in versions)])


def result_file(folder: Path, target: Target, toolchain: Toolchain, commit: str) -> Path:
    """Return the path of asv's result file for a commit, a target and a toolchain."""
    return folder / str(get_filename(machine_name(target, toolchain), commit, ENVIRONMENT))


def write_exact(
    folder: Path,
    target: Target,
    commit: str,
    date: int,
    harness: str,
    suites: Iterable[Suite],
    codes: Mapping[CaseKey, CaseCode],
    toolchain: Toolchain,
    compiler: CompilerFacts,
) -> int:
    """Write asv's file of a commit, its provenance, and the tables that asv needs beside them.

    Args:
        target: the target that the code is compiled for.
        commit: the full hash of the commit.
        date: the commit's date, ms since 1970.
        harness: commit of suites and harness, see ``Provenance``.
        codes: the compiled code of the cases at that commit.
        toolchain: the packages that compiled the code.
        compiler: facts about the compiler, for the provenance.

    Returns:
        The number of written numbers; if it is 0, no file is written.
    """
    machine, python = machine_name(target, toolchain), f"{sys.version_info[0]}.{sys.version_info[1]}"
    strings = {**dict.fromkeys(("arch", "cpu", "num_cpu", "os", "ram"), ""), "machine": machine, "gpu": target.name}
    now = datetime.now(UTC)
    results = Results({**strings, "python": python}, {}, commit, date, python, ENVIRONMENT, {})
    entries: dict[str, Any] = {}
    count = 0
    for suite in suites:
        entry, numbers = _benchmarks(suite), _numbers(suite, codes)
        entries |= {each["name"]: each for each in entry.values()}
        for quantity, values in numbers.items():
            blank = [None] * len(values)
            result = BenchmarkResult(values, blank, blank, 0, "", None)
            results.add_result(entry[quantity], result, started_at=now)
            count += sum(not math.isnan(value) for value in values)
    if not count:
        return 0
    host = {**compiler.versions, "device": "none"}
    provenance = Provenance(
        commit, ENVIRONMENT, machine, now.isoformat(), harness, "compiled", host, {}, PROTOCOL_VERSION
    )
    write_records(result_file(folder, target, toolchain, commit).with_suffix("").with_suffix(SUFFIX), provenance, [])
    results.save(str(folder))
    write_json(str(folder / machine / "machine.json"), strings, Machine.api_version)
    add_entries(folder, entries)
    return count


def _benchmarks(suite: Suite) -> dict[str, dict[str, Any]]:
    """Return asv's benchmark of each exact quantity of a suite, by quantity."""
    common = {
        "type": EXACT_TYPE,
        "params": [[repr(name) for name in suite.variants()], [repr(case) for case in followed_cases(suite)]],
        "param_names": ["variant", "case"],
        "version": suite.benchmark_version,
        "suite": suite.name,
    }
    return {
        name: {
            **common,
            "name": benchmark_name(suite.name, name),
            "quantity": name,
            "unit": QUANTITIES[name].unit,
            "code": f"{name}: {QUANTITIES[name].about}",
        }
        for name in EXACT
    }


def followed_cases(suite: Suite) -> list[str]:
    """Return the cases at which a history measures every variant. All cases would be several times as many."""
    return [
        case.label for case in suite.cases if all(in_history(suite, name, case, "cold") for name in suite.variants())
    ]


def _numbers(suite: Suite, codes: Mapping[CaseKey, CaseCode]) -> dict[str, Sequence[float]]:
    """Return the numbers of each quantity that some case has, in the order of asv's parameters; NaN if unknown."""
    keys = [CaseKey(suite.name, variant, case) for variant in suite.variants() for case in followed_cases(suite)]
    known = [exact_quantities(codes[key]) if key in codes else {} for key in keys]
    return {name: [each.get(name, math.nan) for each in known] for name in EXACT if any(name in each for each in known)}
