"""Plan which commits to measure next, on which GPU, in how many GPU seconds, and why.

The order: the newest commit, bridges where cases move to another GPU, commits in the open ranges of changes, repeats
where the detector is unsure, then gaps. A range is divided into equal sections (k-section): its middle comes first,
then the middles of its halves, so that the commits that fit into the budget divide it evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from lockstep.asv.fresh_runs import middles
from lockstep.fleet.shard import Shard
from lockstep.processes.exit_status import UsageError
from lockstep.record.counted import counted
from lockstep.record.model import Provenance, Record

#: Suite and label of a case.
CaseName = tuple[str, str]

#: Stages of a run that belong to no case.
_FIXED = ("start", "import", "compile", "rest")


@dataclass(frozen=True)
class Doubt:
    """What the detector cannot decide from the numbers at hand.

    Attributes:
        kind: "open": one of several commits made a change. "unsure": the change may be noise.
        commits: the commits that may have made it, oldest first; for "unsure", the commit to repeat.
        cases: the cases that show it.
        text: the change, for people.
    """

    kind: Literal["open", "unsure"]
    commits: tuple[str, ...]
    cases: frozenset[CaseName]
    text: str


@dataclass(frozen=True)
class Costs:
    """What measurements of the past took, in seconds.

    Attributes:
        cases: the median of each case that was measured.
        fixed_s: the median of what a commit takes on each GPU besides its cases: starting and compiling; ``None`` if
            nothing was measured.
    """

    cases: Mapping[CaseName, float] = field(default_factory=dict)
    fixed_s: float | None = None

    @classmethod
    def of(cls, files: Iterable[tuple[Provenance, Sequence[Record]]]) -> Costs:
        """Return the costs that the records of some commits tell."""
        cases: dict[CaseName, list[float]] = {}
        fixed: list[float] = []
        for provenance, records in files:
            spent: dict[CaseName, float] = {}
            for record in {record.key: record for record in records}.values():
                name = record.suite, record.case
                spent[name] = spent.get(name, 0.0) + record.wall_s
            for name, seconds in spent.items():
                if seconds > 0:
                    cases.setdefault(name, []).append(seconds)
            if provenance.spent_s:
                fixed.append(sum(provenance.spent_s.get(stage, 0.0) for stage in _FIXED) / max(len(provenance.gpus), 1))
        return cls({name: median(values) for name, values in cases.items()}, median(fixed) if fixed else None)

    def seconds(self, cases: Iterable[CaseName]) -> float | None:
        """Return the seconds of one GPU for these cases of a commit; ``None`` if nothing was measured.

        A case that was not measured yet takes as long as the median case.
        """
        if self.fixed_s is None or not self.cases:
            return None
        usual = median(self.cases.values())
        return self.fixed_s + sum(self.cases.get(case, usual) for case in cases)


@dataclass(frozen=True)
class Task:
    """What one shard measures of a commit. ``seconds`` is ``None`` if unknown."""

    shard: Shard
    cases: tuple[CaseName, ...]
    seconds: float | None


@dataclass(frozen=True)
class Step:
    """A commit to measure, and why.

    Attributes:
        again: whether the cases were measured at this commit before.
    """

    commit: str
    why: str
    tasks: tuple[Task, ...]
    again: bool = False

    @property
    def seconds(self) -> float | None:
        """Return the GPU seconds of all shards; ``None`` if unknown."""
        return total(self.tasks)


@dataclass(frozen=True)
class Plan:
    """What to measure, in this order.

    Attributes:
        left_out: number of steps that the budget does not allow.
    """

    steps: tuple[Step, ...]
    left_out: int

    @property
    def seconds(self) -> float | None:
        """Return the GPU seconds of all steps; ``None`` if unknown."""
        return total(self.steps)

    def tasks_of(self, shard: Shard) -> list[Task]:
        """Return what a shard measures."""
        return [task for step in self.steps for task in step.tasks if task.shard == shard]


def total(parts: Sequence[Task | Step]) -> float | None:
    """Return the sum of the seconds of tasks or steps; ``None`` if the seconds of one are unknown."""
    known = [part.seconds for part in parts if part.seconds is not None]
    return sum(known) if len(known) == len(parts) else None


def measured_by(files: Iterable[tuple[Provenance, Sequence[Record]]]) -> dict[str, dict[CaseName, frozenset[str]]]:
    """Return the UUIDs of the GPUs that measured each case, by commit."""
    measured: dict[str, dict[CaseName, frozenset[str]]] = {}
    for provenance, records in files:
        cases = measured.setdefault(provenance.commit, {})
        for one in records:
            case, uuid = (one.suite, one.case), provenance.host_of(one).get("gpu_uuid", "")
            cases[case] = cases.get(case, frozenset()) | {uuid}
    return measured


@dataclass(frozen=True)
class Known:
    """What is known before a plan.

    Attributes:
        owners: the shard that owns each case.
        measured: the cases measured at each commit, with the UUIDs of the GPUs that measured them.
        costs: what they took.
        doubts: what the detector cannot decide.
        line: all commits of the branches, newest first.
    """

    owners: Mapping[CaseName, Shard]
    measured: Mapping[str, Mapping[CaseName, frozenset[str]]]
    costs: Costs
    doubts: Sequence[Doubt] = ()
    line: Sequence[str] = ()


def plan(commits: Sequence[str], known: Known, budget_s: float | None = None) -> Plan:
    """Return the plan for a range of commits.

    Args:
        commits: the commits of the range, newest first.
        budget_s: GPU seconds of all shards together; ``None`` for no limit. A step that does not fit is left out.

    Raises:
        UsageError: there is a budget, and nothing is known of the costs.
    """
    steps: list[Step] = []
    left, left_out = budget_s, 0
    for commit, cases, why, again in _wanted(commits, known):
        tasks = _tasks(cases, known)
        step = Step(commit, why, tasks, again)
        if left is not None:
            if step.seconds is None:
                raise UsageError(
                    "the costs of a case are not known before something was measured: leave out the budget"
                )
            if step.seconds > left:
                left_out += 1
                continue
            left -= step.seconds
        steps.append(step)
    return Plan(tuple(steps), left_out)


def _wanted(commits: Sequence[str], known: Known) -> Iterator[tuple[str, frozenset[CaseName], str, bool]]:
    """Yield commit, cases, reason, and whether the cases are repeated, in the order of the plan."""
    everything = frozenset(known.owners)
    open_cases = {commit: everything - known.measured.get(commit, {}).keys() for commit in commits}
    places = {commit: place for place, commit in enumerate(commits)}
    yielded: set[str] = set()
    if commits and open_cases[commits[0]]:
        yielded.add(commits[0])
        yield commits[0], open_cases[commits[0]], "newest commit", False
    for commit, moved in _bridges(known).items():
        yield commit, frozenset(moved), "bridge: another GPU measured it", False
    for doubt in known.doubts:
        inside = [commit for commit in doubt.commits[:-1] if commit in places and open_cases[commit] & doubt.cases]
        if doubt.kind == "open":
            for commit in middles(inside):
                if commit not in yielded:
                    yielded.add(commit)
                    yield commit, open_cases[commit], f"divides {len(doubt.commits)} commits: {doubt.text}", False
    for doubt in known.doubts:
        if doubt.kind == "unsure" and (cases := doubt.cases & everything):
            for commit in doubt.commits:
                if commit in places:
                    yield commit, cases, f"repeat, the detector is unsure: {doubt.text}", True
    for stretch in _stretches([commit for commit in commits if commit not in yielded], places, open_cases):
        for commit in middles(stretch):
            yield commit, open_cases[commit], f"gap of {counted(len(stretch), 'commit')}", False


def _bridges(known: Known) -> dict[str, set[CaseName]]:
    """Return the newest commit that another GPU than the owner measured, for each case; none if both measured it."""
    line = [commit for commit in known.line if commit in known.measured]
    bridges: dict[str, set[CaseName]] = {}
    for case, shard in known.owners.items():
        gpus = {commit: known.measured[commit].get(case, frozenset()) - {""} for commit in line}
        last = next((commit for commit in line if gpus[commit] - {shard.uuid}), None)
        if shard.uuid and last and shard.uuid not in gpus[last]:
            bridges.setdefault(last, set()).add(case)
    return bridges


def _stretches(
    commits: Sequence[str], places: Mapping[str, int], open_cases: Mapping[str, frozenset[CaseName]]
) -> list[list[str]]:
    """Return the runs of neighbouring commits that lack cases, the longest and then the newest first."""
    runs: list[list[str]] = []
    for commit in commits:
        if not open_cases[commit]:
            continue
        if runs and places[commit] == places[runs[-1][-1]] + 1:
            runs[-1].append(commit)
        else:
            runs.append([commit])
    return sorted(runs, key=lambda run: (-len(run), places[run[0]]))


def _tasks(cases: frozenset[CaseName], known: Known) -> tuple[Task, ...]:
    by_shard: dict[Shard, list[CaseName]] = {}
    for case in sorted(cases):
        by_shard.setdefault(known.owners[case], []).append(case)
    return tuple(
        Task(shard, tuple(mine), known.costs.seconds(mine))
        for shard, mine in sorted(by_shard.items(), key=lambda pair: pair[0].place)
    )
