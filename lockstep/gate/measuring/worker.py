"""The gate's worker: holds both versions in one process and judges the requested groups.

Requests: ``{"judge": [GroupRequest, …], "seconds": …}``, ``{"observe": Group}``. Events: ``stage``, ``ready`` (host,
clocks, and the result of importing each suite's variants from base and head), ``group`` (the group whose cases run from
now on), ``verdict`` (one for each case), ``told`` (a line of progress), ``judged`` (the controls so far), ``work`` (one
for each variant: whether base and head give the GPU the same work), ``observed``, ``lost``.
``lockstep.processes.watched_worker`` describes how requests and events are sent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lockstep.gate.worker_client import Setup
from lockstep.processes.import_torch import load_torch
from lockstep.processes.worker import WorkerProcess, typed
from lockstep.suite.definition import Suite

if TYPE_CHECKING:
    from lockstep.gate.measuring.comparer import Comparer


def main() -> int:
    """Import base and head, and judge them: serve the parent's requests until standard input ends."""
    process = WorkerProcess()
    setup = process.specification(Setup)
    load_torch()
    from lockstep.gate.namespaces import Sides
    from lockstep.gate.operators import keep_apart
    from lockstep.suite.discovery import load_suites
    from lockstep.suite.family_files import definition_packages

    suites = load_suites(setup.benchmark_dir)
    with_adapters = [suites[name] for name in setup.suites if suites[name].adapters]
    definitions = {
        top: suite.home.parent for suite in with_adapters for top in definition_packages(suite, setup.packages)
    }
    sides = Sides(setup.packages, definitions, base=setup.base, head=setup.head)
    keep_apart(sides, "base")
    from lockstep.gate.measuring.comparer import Comparer
    from lockstep.gate.measuring.pairing import pace_on
    from lockstep.record.provenance import host_facts, with_clocks
    from lockstep.timing.device import open_device
    from lockstep.timing.intervals import t_quantile
    from lockstep.timing.tuners.choices import Choices, where_of
    from lockstep.timing.tuners.held_choices import Tuners

    def stage(doing: str, variant: str, side: str) -> None:
        process.stage(doing, f"{variant}@{side}" if side else variant)

    device, facts = open_device(), host_facts()
    tuners = Tuners(Choices(setup.tuned), device, where_of(facts), setup.retune, tell=process.tell)
    comparer = Comparer(
        sides,
        device,
        pace_on(device, quick=setup.quick),
        setup.seed,
        stage,
        begin=lambda group: process.emit("group", group=asdict(group)),
        tell=process.tell,
        tuners=tuners,
    )
    imported: dict[str, dict[str, Any]] = {}
    for name in setup.suites:
        for side in [setup.alone] if setup.alone else ["base", "head"]:
            if f"{name}@{side}" not in setup.skip:
                stage("load", name, side)
                imported.setdefault(name, {})[side] = asdict(comparer.families.load(suites[name], side))
    process.emit("ready", host=facts, clock_state=with_clocks(facts).clock_label, found=imported)
    t_quantile(0.99, 3)  # loads scipy while the parent observes
    with tuners.held():
        return _serve(process, comparer, suites)


def _serve(process: WorkerProcess, comparer: Comparer, suites: Mapping[str, Suite]) -> int:
    """Serve the parent's requests until standard input ends; return the exit status."""
    from lockstep.gate.model import Group, GroupRequest
    from lockstep.timing.device import DeviceLost

    for request in process.requests():
        try:
            if "observe" in request:
                group = typed(Group, request["observe"])
                for variant, observed in comparer.observe(suites[group.suite], group.case, group.variants):
                    process.emit("work", variant=variant, **asdict(observed))
                process.emit("observed")
                continue
            asked = [typed(GroupRequest, row) for row in request["judge"]]
            for verdict in comparer.judge([(suites[one.group.suite], one) for one in asked], request["seconds"]):
                process.emit("verdict", verdict=asdict(verdict))
        except DeviceLost as lost:
            return process.lost(lost.variant, lost.reason)
        process.emit("judged", controls=comparer.controls_summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
