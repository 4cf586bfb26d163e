"""Exact quantities (found by compiling) as asv's results: a benchmark for each suite and quantity, a file for each
commit and target.

asv's machine of these results is named after the target, ``sm_90-compiled``. Its description says nothing about the
computer that compiled, so any computer continues its series. A toolchain other than the installed one has a machine of
its own, ``sm_90-compiled@triton-3.6.0``, so that two toolchains compare as two machines do.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from asv.results import get_filename

from lockstep.asv.write_results import Result, write_results
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts
from lockstep.machine_code.exact_quantities import quantity_ranges, why_unknown
from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.machine_code.targets import Target
from lockstep.processes.toolchain import INSTALLED, Toolchain
from lockstep.record.file import SUFFIX, RecordError, provenance_path, read_records, write_records
from lockstep.record.model import Provenance
from lockstep.record.quantity import EXACT, EXACT_TYPE, QUANTITIES, benchmark_name
from lockstep.suite.definition import PROTOCOL_VERSION, Suite
from lockstep.suite.evaluate import in_history

#: asv's name of the environment, the same as for ``lockstep run``.
ENVIRONMENT = "lockstep"


class Written(NamedTuple):
    """What was written for a commit: how many numbers, how many of them ranges, and why cases have none."""

    numbers: int
    ranges: int
    reasons: Mapping[str, Sequence[CaseKey]]


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
    chosen: Mapping[CaseKey, Mapping[str, str]] | None = None,
) -> Written:
    """Write asv's file of a commit, its provenance, and the tables that asv needs beside them; return what is written.

    Without numbers, no file is written.

    Args:
        date: the commit's date, ms since 1970.
        harness: commit of suites and harness, see ``Provenance``.
        toolchain: the packages that compiled the code.
        chosen: the configurations of tuned kernels that records of this commit name, by case. A case without them has
            the highest value of all configurations, with the range as asv's interval.
    """
    machine, python = machine_name(target, toolchain), f"{sys.version_info[0]}.{sys.version_info[1]}"
    now = datetime.now(UTC)
    found: list[tuple[dict[str, Any], list[Result]]] = []
    reasons: dict[str, list[CaseKey]] = {}
    for suite in suites:
        keys = _keys(suite)
        known = [quantity_ranges(codes[key], (chosen or {}).get(key)) if key in codes else {} for key in keys]
        for key in keys:
            if key in codes and (reason := why_unknown(codes[key])):
                reasons.setdefault(reason, []).append(key)
        for quantity, entry in _benchmarks(suite).items():
            results = [_result(each.get(quantity)) for each in known]
            found.append((entry, results if any(quantity in each for each in known) else []))
    every = [result for _, results in found for result in results]
    count = sum(result.value is not None and not math.isnan(result.value) for result in every)
    if not count:
        return Written(0, 0, reasons)
    host = {**compiler.versions, "device": "none"}
    provenance = Provenance(
        commit, ENVIRONMENT, machine, now.isoformat(), harness, "compiled", host, {}, PROTOCOL_VERSION
    )
    write_records(provenance_path(result_file(folder, target, toolchain, commit)), provenance, [])
    described = {"machine": machine, "gpu": target.name}
    write_results(folder, described, commit, date, ENVIRONMENT, found, int(now.timestamp() * 1000), python)
    return Written(count, sum(bool(result.stats) for result in every), reasons)


def _result(ends: tuple[int, int] | None) -> Result:
    """Return the higher end of a range, with the range as asv's interval; NaN for ``None``."""
    if ends is None:
        return Result(math.nan)
    low, high = ends
    return Result(high, {"ci_99_a": low, "ci_99_b": high} if low < high else {})


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


def chosen_configurations(folder: Path, commit: str, target: Target) -> dict[CaseKey, dict[str, str]]:
    """Return the configurations that tuners chose at a commit on a GPU of this architecture, as records name them."""
    chosen: dict[CaseKey, dict[str, str]] = {}
    for path in folder.glob(f"*/{commit[:8]}*{SUFFIX}"):
        with contextlib.suppress(RecordError):
            provenance, records = read_records(path)
            if provenance.host.get("capability", "").replace(".", "") == str(target.arch):
                for record in records:
                    if record.chosen:
                        chosen[CaseKey(record.suite, record.variant, record.case)] = dict(record.chosen)
    return chosen


def followed_cases(suite: Suite) -> list[str]:
    """Return the cases at which a history measures every variant. All cases would be several times as many."""
    return [
        case.label for case in suite.cases if all(in_history(suite, name, case, "cold") for name in suite.variants())
    ]


def _keys(suite: Suite) -> list[CaseKey]:
    """Return the cases of a history, in the order of asv's parameters."""
    return [CaseKey(suite.name, variant, case) for variant in suite.variants() for case in followed_cases(suite)]
