"""Compare two versions by a script: from the script's name to the gate's report."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.gate.model import UNREACHED, Verdict
from lockstep.gate.report.report import Report
from lockstep.gate.report.rows import WHOLE_SCRIPT
from lockstep.gate.request import unfit_machine
from lockstep.gate.versions import version
from lockstep.scripts.client import Outcome, run_plan
from lockstep.scripts.judge_call import refused
from lockstep.scripts.paired_run import APART, LEAST, LEAST_S, PairedRun
from lockstep.scripts.plan import BASE, HEAD, Plan
from lockstep.scripts.project import Project
from lockstep.suite.family_files import same_packages


@dataclass(frozen=True)
class Asked:
    """A request to compare two versions by a script.

    Attributes:
        base, head: versions; "." is the working tree.
        plan: the settings, without versions.
        apart: whether base and head need processes of their own, as releases of compiled code do.
    """

    project: Project
    base: str
    head: str
    plan: Plan
    need_gpu: bool = False
    need_lock: bool = False
    apart: bool = False


def gate_script(asked: Asked, say: Callable[[str], None]) -> Report:
    """Return the report on a script's calls; ``RefError`` if base or head is not a version in this repository.

    Versions that one process cannot hold are compared again, in a process each.
    """
    started, project = time.monotonic(), asked.project
    outcome, interrupted = Outcome(), False
    with (
        version(project.root, asked.base, project.contents) as base,
        version(project.root, asked.head, project.contents) as head,
    ):
        say(f"comparing base {base.label} with head {head.label} by {project.file.name}, {_what(asked)}")
        plan = replace(asked.plan, sides={BASE: project.side(base.tree.root), HEAD: project.side(head.tree.root)})
        if asked.apart:
            plan = replace(plan, min_effect=max(plan.min_effect, LEAST), least_s=2 * LEAST_S)
        elif not plan.measure_all and same_packages(base.tree.root, head.tree.root, project.packages):
            plan = replace(plan, only_find=True)
        try:
            for number in _compare(asked, plan, {BASE: base.label, HEAD: head.label}, say, outcome):
                if unfit_machine(outcome.machine, asked.need_gpu, asked.need_lock):
                    break
                if (verdict := outcome.verdicts.get(number)) is not None:
                    say(f"{verdict.outcome:>8}  {verdict.key}  {verdict.reason}")
        except KeyboardInterrupt:
            interrupted = True
    unfit = unfit_machine(outcome.machine, asked.need_gpu, asked.need_lock) if outcome.machine else ""
    if outcome.conflict and not (unfit or interrupted):
        say(f"{outcome.conflict}: each version gets a process of its own")
        return gate_script(replace(asked, apart=True), say)
    cases = () if unfit else (*_verdicts(plan, outcome), *outcome.extra)
    cases = tuple(replace(case, file=_place(case.file, project, plan)) for case in cases)
    return Report(
        base=base.label,
        head=head.label,
        min_effect=plan.min_effect,
        confidence=plan.confidence,
        budget_s=plan.budget_s,
        seed=plan.seed,
        machine=outcome.machine,
        cases=cases,
        wall_s=time.monotonic() - started,
        notes=(*_notes(outcome), *([APART] if asked.apart else [])),
        trouble=unfit or outcome.trouble or ("" if interrupted else _trouble(plan, outcome)),
        interrupted=interrupted,
        controls=outcome.controls,
        script=shlex.join([_place(str(project.file), project, plan), *plan.arguments]),
    )


def _compare(
    asked: Asked, plan: Plan, names: Mapping[str, str], say: Callable[[str], None], outcome: Outcome
) -> Iterator[int]:
    """Fill ``outcome`` and yield each call's number: of those that the budget has room for, then of further ones.

    A plan chooses as many calls as the budget allows if each takes long. Most do not, so others are compared with what
    is left of the budget.
    """
    known, rest = -1, plan
    while len(outcome.verdicts) > known and not (outcome.trouble or outcome.conflict):
        known = len(outcome.verdicts)
        yield from PairedRun(rest, names, say).run(outcome) if asked.apart else run_plan(rest, say, outcome)
        rest = replace(plan, budget_s=plan.budget_s - sum(verdict.wall_s for verdict in outcome.verdicts.values()))
        if rest.budget_s < plan.least_s or not rest.chosen(outcome.calls, outcome.done):
            return


def _place(file: str, project: Project, plan: Plan) -> str:
    """Return a file of base, head or the working tree as its path in the repository; other files as they are."""
    roots = {Path(side.root): project.root for side in plan.sides.values()} | {project.top: project.top}
    for root, there in roots.items():
        if file and Path(file).is_relative_to(root):
            return str((there / Path(file).relative_to(root)).relative_to(project.top))
    return file


def _ends_early_in_head(outcome: Outcome) -> bool:
    """Return whether head's script ended early, and base's did not."""
    return bool(outcome.errors.get(HEAD) and not outcome.errors.get(BASE))


def _what(asked: Asked) -> str:
    if asked.apart:
        return "each in a process of its own"
    if asked.project.own:
        return "which imports no package of its repository, so each version runs its own script"
    return f"with {', '.join(asked.project.packages)} from each version"


def _verdicts(plan: Plan, outcome: Outcome) -> list[Verdict]:
    """Return a verdict for each selected call, and for a script that ends early in head alone."""
    verdicts = []
    for number in plan.selected(outcome.calls):
        key = plan.key(outcome.calls[number])
        if number in outcome.verdicts:
            verdicts.append(outcome.verdicts[number])
        elif plan.only_find:
            verdicts.append(Verdict(key, "same", "the same sources", unchanged=True))
        else:
            reasons = {side: points[number] for side, points in outcome.refused.items() if number in points}
            verdicts.append(refused(key, reasons) if reasons else Verdict(key, "unsure", UNREACHED))
    if _ends_early_in_head(outcome):
        reasons = {HEAD: f"head's script ends early: {outcome.errors[HEAD]}"}
        verdicts.append(refused(plan.key(("-", WHOLE_SCRIPT)), reasons))
    return verdicts


def _notes(outcome: Outcome) -> list[str]:
    """Return why scripts ended early, unless the report tells it elsewhere."""
    head, base = (outcome.errors.get(side, "") for side in (HEAD, BASE))
    if head == base:
        whose = {"both scripts": head if outcome.calls else ""}
    else:
        # Where base's script does not end, a row tells of head's; without a call the trouble does.
        whose = {"base's script": base, "head's script": head if base and outcome.calls else ""}
    return [
        f"{scripts} ended early, so later calls were not taken: {error}"
        for scripts, error in whose.items()
        if error and error not in outcome.trouble
    ]


def _trouble(plan: Plan, outcome: Outcome) -> str:
    """Return why a script gives nothing to compare; "" if it gives some calls, or fails in head alone."""
    if not outcome.calls and _ends_early_in_head(outcome):
        return ""
    if (error := outcome.errors.get(BASE)) and {verdict.outcome for verdict in outcome.verdicts.values()} == {"new"}:
        return f"base's script ended before its first timed call: {error}"
    return outcome.why_no_call(plan, Path(plan.sides[HEAD].file))
