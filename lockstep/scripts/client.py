"""Run a plan in worker processes: when a call kills a worker, a new worker goes on with the other calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.gate.model import Verdict
from lockstep.gate.versions import version
from lockstep.processes.watched_worker import Watched, WorkerDied
from lockstep.processes.worker import spelled, typed
from lockstep.record.file import record_from
from lockstep.record.model import Record
from lockstep.scripts.no_call import why_no_call
from lockstep.scripts.plan import BASE, HEAD, Plan
from lockstep.scripts.project import Project

#: Workers that may die before the rest of the script is given up.
MOST_DEATHS = 4

#: Seconds without an event after which a worker counts as hung; a call may compile many kernels.
SILENCE_S = 120.0


@dataclass
class Outcome:
    """What the calls of a script gave.

    Attributes:
        calls: case and variant of each call of head, in order.
        verdicts, records: by the number of the call. A call that killed a worker has failed.
        extra: verdicts on calls that base alone makes.
        adopted: source of suites, of a plan that adopts; ``left_out`` has the variants that it lacks, by the reason.
        refused: why points cannot be taken, by side and the number of the call.
        errors: why a side's script ended early, by side.
        conflict: why one process cannot hold base and head; "" if it can.
        trouble: why no worker starts; "" if one does.
    """

    machine: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    extra: list[Verdict] = field(default_factory=list)
    records: dict[int, Record] = field(default_factory=dict)
    adopted: str = ""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, dict[int, str]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    conflict: str = ""
    controls: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    trouble: str = ""

    @property
    def done(self) -> set[int]:
        """Return the numbers of the calls that need no measurement any more."""
        return {*self.verdicts, *self.records, *(number for points in self.refused.values() for number in points)}

    def remarks(self, plan: Plan, file: Path) -> list[str]:
        """Return a line for everything that the script ``file``, measured alone, did not give: which call, and why."""
        alike: dict[str, list[str]] = {}
        for number, reason in self.refused.get(HEAD, {}).items():
            case, variant = self.calls[number]
            alike.setdefault(reason, []).append(f"{variant} at {case}")
        lines = [
            f"not taken: {points[0]}{f' and {len(points) - 1} more' if len(points) > 1 else ''}: {reason}"
            for reason, points in alike.items()
        ]
        error = self.errors.get(HEAD, "")
        nothing = self.trouble or self.why_no_call(plan, file)
        if error and error not in nothing:
            lines.append(f"the script ended early, so later calls were not taken: {error}")
        return [*lines, *filter(None, [nothing])]

    def why_no_call(self, plan: Plan, file: Path) -> str:
        """Return why the script ``file`` gives no call at all; "" if it gives some."""
        return why_no_call(plan, file, self.calls, self.errors.get(HEAD, ""), self.machine.get("gpu", ""))


def run_version(project: Project, name: str, plan: Plan, say: Callable[[str], None], outcome: Outcome) -> Iterator[int]:
    """Run a plan with a version's packages alone, as ``run_plan`` does; "." names the working tree.

    Raise ``RefError`` if there is no such version.
    """
    with version(project.root, name, project.contents) as tree:
        yield from run_plan(replace(plan, sides={HEAD: project.side(tree.tree.root)}), say, outcome)


def run_plan(plan: Plan, say: Callable[[str], None], outcome: Outcome) -> Iterator[int]:
    """Fill ``outcome``, and yield the number of each call that is done.

    The caller may stop iterating; the worker then ends. It also ends if one process cannot hold base and head.
    """
    for _ in range(MOST_DEATHS):
        worker = Watched("lockstep.scripts.worker", [spelled(plan)], SILENCE_S, warm=True)
        worker.say = say
        try:
            ready = worker.started()
            outcome.machine = {**ready["host"], "clock_state": ready["clock_state"]}
            found = worker.wait("found")
            outcome.calls = [(case, variant) for case, variant in found["calls"]]
            outcome.errors = {side: error for side, error in found["errors"].items() if error}
            if found["sharers"] and not plan.only_find:
                outcome.conflict = f"both versions would share {found['sharers'][0]}, which uses the code under test"
                return
            worker.ask({"take": sorted(plan.chosen(outcome.calls, outcome.done))})
            for event in worker.until("ended"):
                number = _take(event, outcome)
                if number is not None:
                    yield number
            return
        except WorkerDied as died:
            name, _, side = died.variant.partition("@")
            say(f"the worker {died.how}")
            if not name.isdigit():
                outcome.trouble = died.how
                return
            number, key = int(name), plan.key(outcome.calls[int(name)])
            if BASE in plan.sides:
                outcome.verdicts[number] = Verdict(key, "failed", died.how, in_base=side == BASE)
            else:
                outcome.records[number] = Record(
                    key.suite, key.variant, key.case, key.l2, "failed", plan.version, died.how
                )
            yield number
        finally:
            worker.close(patience_s=1.0)
    outcome.trouble = f"{MOST_DEATHS} workers died"


def _take(event: Mapping[str, Any], outcome: Outcome) -> int | None:
    match event["event"]:
        case "verdict":
            verdict = typed(Verdict, event["verdict"])
            if event["number"] >= len(outcome.calls) or verdict.outcome == "removed":
                if verdict not in outcome.extra:
                    outcome.extra.append(verdict)
                return None
            outcome.verdicts[event["number"]] = verdict
            return int(event["number"])
        case "record":
            outcome.records[event["number"]] = record_from(event["record"])
            return int(event["number"])
        case "adopted":
            outcome.adopted, outcome.left_out = event["text"], event["left_out"]
        case "controls":
            outcome.controls = event["controls"]
        case "ended":
            errors = {side: error for side, error in event["errors"].items() if error}
            if BASE in event["errors"] and [*errors] == [HEAD] and not outcome.errors:  # alone it came to its end
                outcome.conflict = f"beside base's script head's ended early ({errors[HEAD]})"
            outcome.errors |= errors
            for side, points in event["refused"].items():
                outcome.refused[side] = {int(number): reason for number, reason in points.items()}
    return None
