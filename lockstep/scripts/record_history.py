"""Measure a script at commits, and store the times as asv results with provenance beside them."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asv.machine import Machine

from lockstep.asv.write_results import Result, write_results
from lockstep.record.file import read_records, records_path, write_records
from lockstep.record.model import Provenance, Record
from lockstep.record.provenance import Host, ask_host, harness_commit
from lockstep.record.quantity import QUANTITIES, benchmark_name
from lockstep.record.script_facts import all_scripts, facts_of_script
from lockstep.scripts.client import Outcome, run_version
from lockstep.scripts.plan import Plan
from lockstep.scripts.project import Project
from lockstep.suite.commit_sources import commits_in
from lockstep.suite.definition import PROTOCOL_VERSION
from lockstep.timing.tuners.choices import NAME as TUNED

#: asv's name of the environment, the same as for suites.
ENVIRONMENT = "lockstep"


def record_history(project: Project, plan: Plan, span: str, folder: Path, say: Callable[[str], None]) -> int:
    """Measure each commit of a range, oldest first; return the number of commits with a time.

    ``span`` are commits as for git log (``RefError`` if git does not know them), ``folder`` that of asv's results.
    Raise ``RuntimeError`` if torch cannot be imported.
    """
    host, recorded = ask_host(), 0
    harness = harness_commit(project.file.parent, folder)
    script = facts_of_script(plan.suite, project.digest(plan.arguments), project.folders)
    for commit, date in reversed(commits_in(project.top, span)):
        outcome = Outcome()
        for _ in run_version(project, commit, replace(plan, tuned=str(folder / TUNED)), say, outcome):
            pass
        for line in outcome.remarks(plan, project.file):
            say(f"{commit[:8]}: {line}")
        records = list(outcome.records.values())
        say(f"{commit[:8]}: {sum(record.state == 'ok' for record in records)} of {len(outcome.calls)} calls measured")
        if records:
            _store(plan, commit, date, records, outcome, host, folder, harness, script)
            recorded += 1
    return recorded


def _store(
    plan: Plan,
    commit: str,
    date: int,
    records: Sequence[Record],
    outcome: Outcome,
    host: Host,
    folder: Path,
    harness: str,
    script: Mapping[str, str],
) -> None:
    machine = f"{Machine.get_unique_machine_name()}-{host.clock_slug}"
    facts = {name: value for name, value in outcome.machine.items() if name != "clock_state"} | dict(script)
    now = datetime.now(UTC)
    path = records_path(folder / machine, commit, ENVIRONMENT)
    if path.exists():
        before, others = read_records(path)
        facts = all_scripts(before.host) | facts
    else:
        others = []
    others = [record for record in others if record.suite != plan.suite]
    stamp = now.isoformat(timespec="seconds")
    provenance = Provenance(
        commit, ENVIRONMENT, machine, stamp, harness, host.clock_label, facts, outcome.controls, PROTOCOL_VERSION
    )
    write_records(path, provenance, sorted([*others, *records], key=lambda record: record.key))
    described = {**Machine.get_defaults(), "machine": machine, "os": platform.system(), "gpu": facts.get("gpu", "")}
    entry = _benchmark(plan, records)
    by_place = {(repr(record.variant), repr(record.case)): record for record in records}
    results = [_result(by_place.get((variant, case))) for variant in entry["params"][0] for case in entry["params"][1]]
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    started_at = int(now.timestamp() * 1000)
    write_results(folder, described, commit, date, ENVIRONMENT, [(entry, results)], started_at, python)


def _benchmark(plan: Plan, records: Sequence[Record]) -> dict[str, Any]:
    """Return asv's benchmark of the script's times."""
    variants, cases = (list(dict.fromkeys(getattr(one, name) for one in records)) for name in ("variant", "case"))
    return {
        "name": benchmark_name(plan.suite, "latency"),
        "type": "time",
        "quantity": "latency",
        "unit": QUANTITIES["latency"].unit,
        "suite": plan.suite,
        "version": plan.version,
        "params": [[*map(repr, variants)], [*map(repr, cases)], ["'warm'"]],
        "param_names": ["variant", "case", "l2"],
        "code": f"the calls that the script {plan.suite} times",
    }


def _result(record: Record | None) -> Result:
    """Return asv's result of a latency: NaN for what is n/a or was not measured."""
    if record is not None and record.latency_samples:
        return Result.of_samples(record.latency_samples)
    return Result(None if record is not None and record.state == "failed" else math.nan)
