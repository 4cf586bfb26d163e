"""Run a comparison from the parent process: start workers, order the cases, survive crashes, stop at the budget."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.gate.aa_control import AAControl
from lockstep.gate.case_verdict import (
    CHECKS,
    COMPILE,
    LATENCY,
    UNREACHED,
    Group,
    GroupRequest,
    SeriesKey,
    SideFacts,
    Verdict,
)
from lockstep.gate.plan import Selection, aa_groups, deadline_of_group, groups, worst_first
from lockstep.gate.process_pairs.compile_pairs import CompilePairs
from lockstep.gate.report.rows import line
from lockstep.gate.request import Request
from lockstep.gate.sequential import MOST_SAME
from lockstep.gate.unchanged import Unchanged
from lockstep.gate.worker_client import GateWorker, Setup
from lockstep.machine_code import CaseKey
from lockstep.processes.watched_worker import Culprits, WorkerDied

#: Maximum share of the epochs in which a control may move; beyond it the machine counts as unfit.
MOST_MOVED = 0.5

#: Maximum share of the budget for the A/A control.
AA_SHARE = 0.25


@dataclass(frozen=True)
class Conflict:
    """A suite that one process cannot import from both versions, for example because an extension registers operators.

    Attributes:
        head: the result of the import in a process that imports only head.
        error: why head cannot be imported together with base.
    """

    head: SideFacts
    error: str

    @property
    def reason(self) -> str:
        """Return why the cases of a suite with this conflict have no verdict but "unsure"."""
        return f"one process cannot hold both versions ({self.error})"


class Coordinator:
    """Compares base and head in the selected cases, and starts a new worker when a worker dies.

    Args:
        setup: the code that workers import, and the settings of their measurements.
        say: called with each line of progress.
    """

    def __init__(self, setup: Setup, request: Request, say: Callable[[str], None], compile_pairs: CompilePairs) -> None:
        self.setup = setup
        self._compile_pairs = compile_pairs
        self._request = request
        #: Time on ``time.monotonic()``'s clock after which no further epoch starts.
        self._deadline = time.monotonic() + request.budget_s
        self.notes: list[str] = []
        self.verdicts: dict[SeriesKey, Verdict] = {}
        self.aa_verdicts: list[Verdict] = []
        self._aa = AAControl()
        self._say = say
        self._worker: GateWorker | None = None
        self._skip: dict[str, str] = {}
        self._culprits = Culprits()
        self.machine: dict[str, str] = {}
        self.controls: Mapping[str, Mapping[str, float | str]] = {}
        self.imported: Mapping[str, Mapping[str, SideFacts]] = {}
        self.conflicts: dict[str, Conflict] = {}
        self._cases = 0
        self.compared_s = 0.0

    @property
    def absent(self) -> tuple[str, ...]:
        """Return the requested suites that cannot be judged, because neither version has their family."""
        return tuple(
            name
            for name, sides in self.imported.items()
            if len(sides) == 2 and all(side.missing for side in sides.values())
        )

    @property
    def worker(self) -> GateWorker:
        """Return the worker. Start it if needed, without suites whose import hangs or kills the worker.

        Raises:
            WorkerDied: the worker does not start, and the cause is not the import of a suite.
        """
        while self._worker is None:
            try:
                self._worker = GateWorker(self.setup, self._request.silence_s, list(self._skip))
            except WorkerDied as died:
                if "@" not in died.variant:
                    raise
                self._skip[died.variant] = died.how
                self._say(f"import of {died.variant}: {died.how}")
        return self._worker

    def start(self) -> Mapping[str, str]:
        """Import both versions and return facts of the machine with its clock state. Raise the errors of ``worker``."""
        self.machine = {**self.worker.host, "clock_state": self.worker.clock_state}
        self.imported = self.worker.imported
        self._find_conflicts()
        return self.machine

    def close(self) -> None:
        """End the worker and the compiling processes at once."""
        self._compile_pairs.close()
        if self._worker is not None:
            self._worker.close(patience_s=1.0)
            self._worker = None

    def begin(self) -> None:
        """Start the budget of the request, after which judging ends."""
        self._deadline = time.monotonic() + self._request.budget_s

    def observe(self, selection: Selection, unchanged: Unchanged, deadline: float) -> Unchanged:
        """Look on the GPU which cases give it the same work in base and head. A CPU shows nothing.

        Args:
            unchanged: what is known without the GPU; cases of suites with equal sources are not observed.
            deadline: time on ``time.monotonic()``'s clock after which no further case is observed.

        Raises:
            WorkerDied: as ``worker``.
        """
        if self.machine["device"] == "cpu":
            return unchanged
        differences: dict[CaseKey, str] = {}
        refusals: dict[CaseKey, str] = {}
        waiting = [key for key in selection.keys(self.imported) if self._is_on_both_sides(key)]
        to_observe = {
            (group.suite, group.case): group
            for group in groups(key for key in waiting if not unchanged.same(replace(key, quantity=LATENCY)))
        }
        for group in to_observe.values():
            remaining = list(group.variants)
            while remaining and time.monotonic() < deadline:
                try:
                    for variant, difference, refusal in self.worker.observe(replace(group, variants=tuple(remaining))):
                        key = CaseKey(group.suite, variant, group.case)
                        differences[key] = difference
                        refusals |= {key: refusal} if refusal and not difference else {}
                        remaining.remove(variant)
                except WorkerDied as died:
                    self.close()
                    if died.at_start:
                        raise
                    # The case is measured later, which says how it fails.
                    culprit = died.variant.partition("@")[0]
                    remaining.remove(culprit if culprit in remaining else remaining[0])
        same = sum(not difference for difference in differences.values())
        if differences:
            self.notes.append(f"observed on this GPU: {same} of {len(differences)} cases give it the same work")
        return replace(unchanged, observed=differences, refused=refusals)

    def judge(self, selection: Selection, unchanged: Unchanged) -> None:
        """Judge the selected cases and run the A/A control: fill ``verdicts`` and ``aa_verdicts`` within the budget."""
        keys = list(selection.keys(self.imported))
        chance = random.Random(self.setup.seed)
        todo = []
        for key in keys:
            verdict = self._without_measuring(key, unchanged)
            if verdict is not None:
                self.verdicts[key] = verdict
            else:
                todo.append(key)
                self.verdicts[key] = Verdict(key, "unsure", UNREACHED, code=unchanged.reasons(key))
        same = [key for key in keys if self.verdicts[key].unchanged and self.verdicts[key].outcome == "same"]
        cost_keys = self._cost_keys(keys, unchanged)
        checks = [key for key in cost_keys if key.quantity in CHECKS]
        compiled = [key for key in cost_keys if key.quantity == COMPILE]
        costs = [key for key in cost_keys if key.quantity not in (*CHECKS, COMPILE)]
        self._cases = len(todo) + len(compiled) + len(costs)  # a check has no noise, and no share of the error rate
        self._measure_aa(same, todo, costs, chance)
        ordered = []
        for same_kind in (todo, checks, compiled, costs):
            ordered += worst_first(groups(same_kind), unchanged.severity, chance)
        for number, pending_group in enumerate(ordered):
            if time.monotonic() >= self._deadline:
                self.notes.append("the budget ended before every case was judged")
                return
            group = self._with_latency(pending_group)
            if not group.variants:
                continue
            group_deadline = deadline_of_group(ordered[number:], time.monotonic(), self._deadline)
            for verdict in self._measure(group, group_deadline, twins=False):
                self.verdicts[verdict.key] = self._dress(verdict, unchanged)
                if verdict.outcome != "na":
                    self._say(line(self.verdicts[verdict.key]))

    def _cost_keys(self, keys: Sequence[SeriesKey], unchanged: Unchanged) -> list[SeriesKey]:
        """Return the costs to measure. Record a first verdict on every cost: "same" if unchanged, else "unsure"."""
        to_measure = []
        compared = (key for key in keys if self.verdicts[key].outcome in ("same", "unsure"))
        for latency in (key for key in compared if key.suite not in self.conflicts):
            for key in (replace(latency, quantity=cost) for cost in self._request.costs.get(latency.suite, ())):
                if unchanged.same(key):
                    self.verdicts[key] = self._unchanged(key, unchanged)
                    continue
                to_measure.append(key)
                self.verdicts[key] = Verdict(key, "unsure", UNREACHED, code=unchanged.reasons(key))
        return to_measure

    def _with_latency(self, group: Group) -> Group:
        """Remove from a group of costs the variants whose latency cannot be compared, and delete their verdicts."""
        if group.quantity == LATENCY:
            return group
        variants = []
        comparable = {"same", "unsure", "faster", "slower"}
        if group.quantity == COMPILE and self.machine["device"] == "cpu":
            comparable.add("na")  # a machine without a GPU compiles the kernels that it cannot run
        for key in group.cases():
            if self.verdicts[replace(key, quantity=LATENCY)].outcome in comparable:
                variants.append(key.variant)
            else:
                del self.verdicts[key]
        return replace(group, variants=tuple(variants))

    def _head(self, key: SeriesKey) -> SideFacts | None:
        """Return the result of importing head for a case's suite, in a process with or without base."""
        conflict = self.conflicts.get(key.suite)
        return conflict.head if conflict else self.imported.get(key.suite, {}).get("head")

    def _is_on_both_sides(self, key: SeriesKey) -> bool:
        """Return whether the worker imported the case's variant from base and from head."""
        sides = self.imported.get(key.suite, {})
        return key.suite not in self.conflicts and all(
            key.variant in sides.get(side, SideFacts()).variants for side in ("base", "head")
        )

    def _find_conflicts(self) -> None:
        """Find suites whose head can be imported only without base; their cases cannot be compared."""
        failing = {
            name: sides["head"].error
            for name, sides in self.imported.items()
            if "head" in sides and sides["head"].error and "base" in sides and sides["base"].variants
        }
        if not failing:
            return
        alone = GateWorker(self.setup, self._request.silence_s, list(self._skip), alone="head")
        alone.close()
        for name, error in failing.items():
            head = alone.imported.get(name, {}).get("head")
            if head is not None and head.variants:
                self.conflicts[name] = Conflict(head, error)
                self.notes.append(f"{name}: {self.conflicts[name].reason}, so its cases were not compared")

    def trouble(self) -> str:
        """Return why the machine's timings cannot be trusted, or ""."""
        if self.machine["device"] == "cpu":
            return ""  # other work always moves a CPU's controls; a CPU's thresholds are derived from its own noise
        return moved_controls([*self.verdicts.values(), *self.aa_verdicts])

    def _without_measuring(self, key: SeriesKey, unchanged: Unchanged) -> Verdict | None:
        """Return a verdict that needs no measurement (a failed import, a missing variant, no change), or ``None``."""
        sides = self.imported.get(key.suite, {})
        head_died, base_died = (self._skip.get(f"{key.suite}@{side}", "") for side in ("head", "base"))
        base, head = sides.get("base"), self._head(key)
        head_error = f"import of {key.suite}: {head_died}" if head_died else head.error if head else ""
        base_error = f"import of {key.suite}: {base_died}" if base_died else base.error if base else ""
        if head_error:
            return Verdict(key, "failed", head_error, in_base=bool(base_error))
        if head is None or key.variant not in head.variants:
            return Verdict(key, "removed", "head has no such variant")
        if unchanged.same(key) and not base_error:
            return self._unchanged(key, unchanged)
        if key.suite in self.conflicts:
            return Verdict(key, "unsure", self.conflicts[key.suite].reason, code=unchanged.reasons(key))
        return None

    def _unchanged(self, key: SeriesKey, unchanged: Unchanged) -> Verdict:
        file, line = self._place(key)
        if refusal := unchanged.refused.get(CaseKey(key.suite, key.variant, key.case)):
            return Verdict(key, "na", refusal, unchanged=True, file=file, line=line)
        return Verdict(key, "same", unchanged.why(key), unchanged=True, file=file, line=line)

    def _place(self, key: SeriesKey) -> tuple[str, int]:
        head = self._head(key)
        return head.variants.get(key.variant, ("", 0)) if head else ("", 0)

    def _measure_aa(
        self,
        same: Sequence[SeriesKey],
        todo: Sequence[SeriesKey],
        costs: Sequence[SeriesKey],
        chance: random.Random,
    ) -> None:
        """Compare unchanged code with itself (A/A control). The differences are noise: thresholds must be larger."""
        if not todo and not costs:
            return  # no case needs the control
        on_cpu = self.machine["device"] == "cpu"
        # A CPU's noise changes from case to case. A CPU has few cases, so all of them are compared with themselves.
        bases = {name: sides.get("base", SideFacts()).variants for name, sides in self.imported.items()}
        in_base = [key for key in (*todo, *costs) if key.variant in bases[key.suite]]
        picks = groups(in_base) if on_cpu else []
        for quantity in [] if on_cpu else dict.fromkeys(key.quantity for key in in_base):
            of_quantity = [key for key in in_base if key.quantity == quantity]
            picks += aa_groups(same if same and quantity == LATENCY else of_quantity, chance)
        deadline = time.monotonic() + AA_SHARE * (self._deadline - time.monotonic())
        for number, group in enumerate(picks):
            if time.monotonic() >= deadline:
                break
            # Observed cases are the same work for the GPU. Their host time may differ.
            twins = on_cpu or not same or group.quantity != LATENCY
            group_deadline = deadline_of_group(picks[number:], time.monotonic(), deadline)
            verdicts = [
                verdict for verdict in self._measure(group, group_deadline, twins=twins) if verdict.change is not None
            ]
            self.aa_verdicts += [replace(verdict, unchanged=not twins) for verdict in verdicts]
        self._aa = AAControl(tuple(self.aa_verdicts), on_cpu)
        if note := self._aa.note(self._requested):
            self.notes.append(note)

    def _requested(self, key: SeriesKey) -> float:
        """Return the smallest change that counts: for a latency ``--min-effect`` if given, else by thresholds.toml."""
        if self._request.min_effect is not None and key.quantity == LATENCY:
            return self._request.min_effect
        return self._request.thresholds.of(*_fields(key), key.quantity).min_effect

    def _measure(self, group: Group, deadline: float, *, twins: bool) -> Iterable[Verdict]:
        """Yield the verdicts of one group. When a variant kills the worker, a new worker judges the other variants."""
        remaining = {key.variant: key for key in group.cases()}
        for variant in list(remaining):
            if refusal := self._culprits.refusal(group.suite, variant):
                yield Verdict(remaining.pop(variant), "failed", refusal)
        while remaining and (remaining_s := deadline - time.monotonic()) > 0:
            keys = list(remaining.values())
            thresholds = {key.variant: self._request.thresholds.of(*_fields(key), key.quantity) for key in keys}
            request = GroupRequest(
                replace(group, variants=tuple(remaining)),
                min_effect={key.variant: self._aa.least(key, self._requested(key)) for key in keys},
                same_within={key.variant: max(MOST_SAME, self._requested(key)) for key in keys},
                alpha={variant: 1 - threshold.confidence for variant, threshold in thresholds.items()},
                cases=self._cases,
                deadline_s=remaining_s,
                twins=twins,
            )
            if group.quantity == COMPILE:
                yield from self._compile_pairs.judge(request, self.machine)
                return
            try:
                for verdict in self.worker.judge(request):
                    remaining.pop(verdict.key.variant)
                    yield verdict
                self.controls = self.worker.controls
                return
            except WorkerDied as died:
                self.close()
                if died.at_start:
                    raise
                variant, _, side = died.variant.partition("@")
                culprit = variant if variant in remaining else next(iter(remaining))
                self._say(f"{remaining[culprit]}: {died.how}")
                self._culprits.add(group.suite, culprit, died)
                yield Verdict(remaining.pop(culprit), "failed", died.how, in_base=side == "base")

    def _dress(self, verdict: Verdict, unchanged: Unchanged) -> Verdict:
        """Return a worker's verdict with code differences, source line and an accepted slowdown's reason added."""
        key = verdict.key
        file, line = unchanged.source(key) if unchanged.source(key)[0] else self._place(key)
        accepted = None
        if verdict.outcome == "slower":
            size = verdict.change.value if verdict.change else None
            accepted = self._request.thresholds.accepted(*_fields(key), size, self._request.about, key.quantity)
        return replace(
            verdict,
            code=unchanged.reasons(key),
            file=file,
            line=line,
            accepted=accepted.because if accepted else "",
            # A case that this machine cannot run may be unchanged even if every case is to be measured.
            unchanged=verdict.outcome == "na" and replace(unchanged, measure_all=False).same(key),
        )


def moved_controls(verdicts: Iterable[Verdict]) -> str:
    """Return why timings cannot be trusted if a control's time changed in most epochs, voided or not; else ""."""
    counts = [(verdict.moved, verdict.epochs + verdict.voided) for verdict in verdicts]
    moved, epochs = sum(count for count, _ in counts), sum(count for _, count in counts)
    if moved > MOST_MOVED * epochs:
        return f"the controls moved in {moved} of {epochs} epochs, so the machine is not steady"
    return ""


def _fields(key: SeriesKey) -> tuple[str, str, str, str]:
    return key.suite, key.variant, key.case, key.l2
