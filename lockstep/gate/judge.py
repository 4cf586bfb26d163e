"""Judge the selected cases: those that need no measurement, the A/A control, latencies, costs."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lockstep.gate.aa_control import AAControl
from lockstep.gate.compile_pairs import CompilePairs
from lockstep.gate.coordinator import Coordinator
from lockstep.gate.import_facts import Imports
from lockstep.gate.model import (
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
from lockstep.gate.plan import aa_groups, deadline_of, groups
from lockstep.gate.report.rows import line
from lockstep.gate.request import Request
from lockstep.gate.sequential_decision import MOST_SAME, Test
from lockstep.gate.unchanged import Unchanged

#: Maximum share of the epochs in which a control may move; beyond it the machine counts as unfit.
MOST_MOVED = 0.5

#: Maximum share of the budget for the A/A control.
AA_SHARE = 0.25


@dataclass
class Judge:
    """Judges cases within the budget of a request.

    Attributes:
        seed: seed of the order and of the A/A cases.
        verdicts: one verdict per case; cases that were not reached are unsure.
    """

    request: Request
    imports: Imports
    unchanged: Unchanged
    coordinator: Coordinator
    compile_pairs: CompilePairs
    say: Callable[[str], None]
    verdicts: dict[SeriesKey, Verdict] = field(default_factory=dict)
    aa_verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _aa: AAControl = field(default_factory=AAControl)
    _cases: int = 0
    _alike: dict[SeriesKey, list[SeriesKey]] = field(default_factory=lambda: defaultdict(list))

    @property
    def on_cpu(self) -> bool:
        """Return whether the machine has no GPU."""
        return self.coordinator.machine["device"] == "cpu"

    def run(self, keys: Sequence[SeriesKey]) -> None:
        """Fill ``verdicts`` and ``aa_verdicts`` within the budget."""
        deadline = time.monotonic() + self.request.budget_s
        chance = random.Random(self.request.seed)
        todo = list(self._to_measure(keys))
        cost_keys = list(self._costs(keys))
        checks = [key for key in cost_keys if key.quantity in CHECKS]
        compiled = [key for key in cost_keys if key.quantity == COMPILE]
        costs = [key for key in cost_keys if key.quantity not in (*CHECKS, COMPILE)]
        self._cases = len(todo) + len(compiled) + len(costs)  # a check has no noise, and no share of the error rate
        self._measure_aa(todo, costs, chance, deadline)
        kinds = [kind for kind in (todo, checks, costs, compiled) if kind]
        for number, kind in enumerate(kinds):
            ordered = groups(kind)
            chance.shuffle(ordered)
            until = deadline_of(map(len, kinds[number:]), time.monotonic(), deadline)
            for verdict in self._measure([group for one in ordered if (group := self._with_latency(one))], until):
                self.verdicts[verdict.key] = self._dressed(verdict)
                for key in self._alike.get(verdict.key, ()):
                    same_work = f"the same work as {verdict.key.variant}"
                    reason = f"{same_work}; {verdict.reason}" if verdict.reason else same_work
                    self.verdicts[key] = self._dressed(replace(verdict, key=key, reason=reason))
                if verdict.outcome != "na":
                    self.say(line(self.verdicts[verdict.key]))
        if any(verdict.reason == UNREACHED for verdict in self.verdicts.values()):
            self.notes.append("the budget ended before every case was judged")

    def trouble(self) -> str:
        """Return why the machine's timings cannot be trusted, or ""."""
        if self.on_cpu:
            return ""  # other work always moves a CPU's controls; a CPU's thresholds are derived from its own noise
        return moved_controls([*self.verdicts.values(), *self.aa_verdicts])

    def _to_measure(self, keys: Iterable[SeriesKey]) -> Iterator[SeriesKey]:
        """Record a first verdict on every case, and yield the cases to measure.

        Of variants that give the GPU the same work at a case, only the first is measured.
        """
        first: dict[tuple[str, ...], SeriesKey] = {}
        for key in keys:
            verdict = self.imports.verdict(key, self.unchanged)
            self.verdicts[key] = verdict or self._unreached(key)
            if verdict is not None:
                continue
            seen = self.unchanged.seen(key)
            work = (seen and seen.work) or key.variant
            measured = first.setdefault((key.suite, key.case, key.l2, work), key)
            if measured is key:
                yield key
            else:
                self._alike[measured].append(key)

    def _costs(self, keys: Iterable[SeriesKey]) -> Iterator[SeriesKey]:
        """Record a first verdict on every cost, and yield the costs to measure."""
        for latency in keys:
            if self.verdicts[latency].outcome not in ("same", "unsure") or latency.suite in self.imports.conflicts:
                continue
            for key in (replace(latency, quantity=cost) for cost in self.request.costs.get(latency.suite, ())):
                if self.unchanged.same(key):
                    self.verdicts[key] = self.imports.unchanged(key, self.unchanged)
                    continue
                self.verdicts[key] = self._unreached(key)
                yield key

    def _with_latency(self, group: Group) -> Group | None:
        """Remove from a group of costs the variants whose latency cannot be compared, and delete their verdicts.

        Return ``None`` if no variant is left.
        """
        if group.quantity == LATENCY:
            return group
        variants = []
        comparable = {"same", "unsure", "faster", "slower"}
        if group.quantity == COMPILE and self.on_cpu:
            comparable.add("na")  # a machine without a GPU compiles the kernels that it cannot run
        for key in group.cases():
            if self.verdicts[replace(key, quantity=LATENCY)].outcome in comparable:
                variants.append(key.variant)
            else:
                del self.verdicts[key]
        return replace(group, variants=tuple(variants)) if variants else None

    def _measure_aa(
        self, todo: Sequence[SeriesKey], costs: Sequence[SeriesKey], chance: random.Random, deadline: float
    ) -> None:
        """Compare unchanged code with itself (A/A control). The differences are noise: thresholds must be larger."""
        same = [key for key, verdict in self.verdicts.items() if verdict.unchanged and verdict.outcome == "same"]
        same = [key for key in same if key.quantity == LATENCY]
        in_base = [
            key for key in (*todo, *costs) if key.variant in (self.imports.of(key, "base") or SideFacts()).variants
        ]
        # A CPU's noise changes from case to case. A CPU has few cases, so all of them are compared with themselves.
        picks = groups(in_base) if self.on_cpu else []
        for quantity in [] if self.on_cpu else dict.fromkeys(key.quantity for key in in_base):
            of_quantity = [key for key in in_base if key.quantity == quantity]
            picks += aa_groups(same if same and quantity == LATENCY else of_quantity, chance)
        until = time.monotonic() + AA_SHARE * (deadline - time.monotonic())
        # Observed cases are the same work for the GPU. Their host time may differ.
        unlike = [group for group in picks if self.on_cpu or not same or group.quantity != LATENCY]
        for twins, chosen in ((True, unlike), (False, [group for group in picks if group not in unlike])):
            measured = self._measure(chosen, until, twins=twins)
            self.aa_verdicts += [replace(one, unchanged=not twins) for one in measured if one.change is not None]
        self._aa = AAControl(tuple(self.aa_verdicts), self.on_cpu)
        if note := self._aa.note(self._requested):
            self.notes.append(note)

    def _requested(self, key: SeriesKey) -> float:
        """Return the smallest change that counts: for a latency ``--min-effect`` if given, else by thresholds.toml."""
        if self.request.min_effect is not None and key.quantity == LATENCY:
            return self.request.min_effect
        return self.request.thresholds.of(*_fields(key), key.quantity).min_effect

    def _measure(self, chosen: Sequence[Group], deadline: float, *, twins: bool = False) -> Iterator[Verdict]:
        """Yield the verdicts of some groups: all of compile times, or none."""
        requests = [
            GroupRequest(group, {key.variant: self._test(key) for key in group.cases()}, twins) for group in chosen
        ]
        if not chosen or chosen[0].quantity != COMPILE:
            yield from self.coordinator.judge(requests, deadline)
            return
        for number, request in enumerate(requests):
            sizes = (len(group.variants) for group in chosen[number:])
            until = deadline_of(sizes, time.monotonic(), deadline)
            if time.monotonic() < until:
                yield from self.compile_pairs.judge(request, until, self.coordinator.machine)

    def _test(self, key: SeriesKey) -> Test:
        requested = self._requested(key)
        alpha = 1 - self.request.thresholds.of(*_fields(key), key.quantity).confidence
        return Test(self._aa.least(key, requested), alpha, self._cases, max(MOST_SAME, requested))

    def _unaffected(self, key: SeriesKey) -> bool:
        """Return whether the change does not affect a case, even if every case is to be measured."""
        return replace(self.unchanged, measure_all=False).same(key)

    def _unreached(self, key: SeriesKey) -> Verdict:
        """Return the verdict on a case until it is measured."""
        code = self.unchanged.reasons(key)
        return Verdict(key, "unsure", UNREACHED, code=code, unchanged=self._unaffected(key))

    def _dressed(self, verdict: Verdict) -> Verdict:
        """Return a worker's verdict with code differences, source line and an accepted slowdown's reason added."""
        key = verdict.key
        file, line = self.imports.place(key)
        if verdict.outcome == "new" and (error := self.imports.error(key, "base")):
            verdict = replace(verdict, reason=f"nothing to compare with, base failed: {error}", in_base=True)
        accepted = None
        if verdict.outcome == "slower":
            size = verdict.change.value if verdict.change else None
            accepted = self.request.thresholds.accepted(*_fields(key), size, self.request.about, key.quantity)
        return replace(
            verdict,
            code=(*verdict.code, *self.unchanged.reasons(key)),
            file=file,
            line=line,
            accepted=accepted.because if accepted else "",
            unchanged=self._unaffected(key),
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
