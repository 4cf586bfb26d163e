"""Measure the records of one commit, each once, and survive crashes of the worker.

A variant that kills or hangs a worker is found and recorded as failed; the rest of the commit is still measured. The
provenance file is replaced after each case, so an interrupted run loses at most one case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from lockstep.asv.client import Worker, WorkerDied, WorkerSpec
from lockstep.asv.record_compile_times import CompileCosts
from lockstep.machine_code import Target as CompileTarget
from lockstep.machine_code import Tree
from lockstep.machine_code.compiled_tree import compile_ahead
from lockstep.processes.watched_worker import HUNG, Culprits
from lockstep.record.file import RecordError, read_records, write_records
from lockstep.record.model import Provenance, Record
from lockstep.record.quantity import COSTS
from lockstep.suite.definition import PROTOCOL_VERSION
from lockstep.suite.discovery import load_suites
from lockstep.timing.clocks.reference_clocks import NAME, ReferenceClocks

Key = tuple[str, str, str, str]

#: Advice for a variant that hung in its check, which compiles what was not compiled ahead.
_COMPILING = "; if it was compiling, a larger default_benchmark_timeout in asv.conf.json lets it finish"

#: Maximum seconds of compiling ahead.
COMPILING_S = 300.0


@dataclass(frozen=True)
class Target:
    """The commit to measure, and the file for its records. ``lockstep.record.model.Provenance`` describes the fields.

    ``path`` is that of the file; nothing is stored if it is ``None``.
    """

    commit: str
    environment: str
    machine: str
    clock_state: str
    harness: str
    path: Path | None


class Recorder:
    """Measures cases of one commit on demand.

    Args:
        target: the commit, and the file of its records.
        silence_s: seconds without an event after which a worker is killed.
        resume: whether to serve records of the file instead of measuring them again.
        say: called with each line of progress.
        worker: creates a worker (tests pass their own).
        ahead: returns the names of the suites whose kernels are compiled in parallel before the first case.
    """

    def __init__(
        self,
        target: Target,
        spec: WorkerSpec,
        silence_s: float,
        *,
        resume: bool = False,
        say: Callable[[str], None] = print,
        worker: Callable[[WorkerSpec, float], Worker] = Worker,
        ahead: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self.target = target
        self._spec = spec
        self._silence_s = silence_s
        self._say = say
        self._make_worker = worker
        self._worker: Worker | None = None
        self._records: dict[Key, Record] = {}
        self._fresh: set[Key] = set()
        self._resumed: set[Key] = set()
        self._culprits = Culprits()
        self._before: Provenance | None = None
        self._host: Mapping[str, str] = {}
        self._controls: Mapping[str, Mapping[str, float | str]] = {}
        self._compile_costs = CompileCosts(spec)
        self._stillborn = ""
        self._unimportable: dict[str, WorkerDied] = {}
        self._ahead = ahead
        self._compiled = False
        self._recorded_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._began = time.monotonic()
        self._stages: dict[str, float] = {}
        clocks_file = target.path.with_name(NAME) if target.path is not None else None
        self._reference_clocks = ReferenceClocks(clocks_file)
        self._load(resume)

    def served(self, key: Key, version: str) -> Record | None:
        """Return a series' record from this run, or from an earlier run when resuming; ``None`` if there is none."""
        record = self._records.get(key)
        return record if record and key in self._fresh and record.version == version else None

    def record(self, key: Key, version: str, variants: Sequence[str], costs: Sequence[str] = ()) -> Record:
        """Return the record of a series; measure its case with all ``variants`` and ``costs`` if needed."""
        known = self.served(key, version)
        if known is not None and not (key in self._resumed and _lacks(known, costs)):
            return known
        suite, variant, case, l2 = key
        names = list(dict.fromkeys([*variants, variant]))
        for new_record in self.measure(suite, case, l2, names, version, costs=costs):
            self._records[new_record.key] = new_record
            self._fresh.add(new_record.key)
            self._resumed.discard(new_record.key)
        self._save()
        return self._records[key]

    def run(self, arguments: Sequence[str], cwd: str) -> tuple[int, str]:
        """Run an ordinary asv benchmark in the worker; return its exit code and output."""
        try:
            return self._up().run(arguments, cwd)
        except WorkerDied as died:
            self.close()
            return 1, str(died)

    def spent(self) -> dict[str, float]:
        """Return the seconds of this run by stage. "rest" is asv, starting workers, and cases that killed a worker."""
        other_s = time.monotonic() - self._began - sum(self._stages.values())
        return {**self._stages, "rest": max(0.0, other_s)}

    def close(self) -> None:
        """End the worker and the compiler; the next request starts others."""
        self._compile_costs.close()
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @property
    def host(self) -> Mapping[str, str]:
        """Return facts of the machine from the worker.

        Raises:
            WorkerDied: the worker does not start.
        """
        return self._up().host

    def measure(
        self,
        suite: str,
        case: str,
        l2: str,
        variants: list[str],
        version: str,
        twins: Sequence[str] = (),
        costs: Sequence[str] = (),
    ) -> list[Record]:
        """Measure a case in as many workers as necessary. Nothing is stored.

        Args:
            suite, case, l2: the case.
            variants: names of the variants; the baseline is added.
            version: benchmark version, for the records of series that cannot be measured.
            twins: variants that are measured a second time in the same run, as an A/A comparison.
            costs: names of ``lockstep.record.quantity.COSTS`` to measure as well.
        """
        if self._stillborn:
            return [Record(suite, name, case, l2, "failed", version, self._stillborn) for name in variants]
        if dead := self._unimportable.get(suite):
            return [Record(suite, name, case, l2, "failed", version, dead.how, dead.rule) for name in variants]
        by_variant: dict[str, Record] = {}
        failed = {name: refusal for name in variants if (refusal := self._culprits.refusal(suite, name))}
        rules = {name: self._culprits.rule(suite, name) for name in failed}
        groups = [variants]
        reference_mhz = self._reference_clocks.of(suite, case, l2)
        while groups:
            group = groups.pop(0)
            try:
                records, controls, stages = self._up().measure(
                    suite, case, l2, group, failed, twins=twins, reference_mhz=reference_mhz, costs=costs
                )
            except WorkerDied as died:
                self.close()
                if died.at_start:
                    self._stillborn = died.how
                    self._say(f"the worker of {self.target.commit[:8]} does not start: {died.how}")
                    return [Record(suite, name, case, l2, "failed", version, died.how) for name in variants]
                if died.stage == "load":
                    self._unimportable[suite] = died
                    self._say(f"{suite}: {died.how}")
                    return [Record(suite, name, case, l2, "failed", version, died.how, died.rule) for name in variants]
                culprit = died.variant or (group[0] if len(group) == 1 else "")
                if not culprit:
                    # The worker died while all variants were timed. Each variant is timed alone with the baseline to
                    # find the culprit.
                    groups = [[name] for name in group] + groups
                    continue
                advice = _COMPILING if died.rule == HUNG and died.stage == "check" else ""
                self._say(f"{suite} {culprit} at {case}, {l2} L2: {died.how}{advice}")
                failed[culprit], rules[culprit] = died.how, died.rule
                self._culprits.add(suite, culprit, died)
                if culprit in group and len(group) == 1:
                    by_variant[culprit] = Record(suite, culprit, case, l2, "failed", version, died.how, died.rule)
                else:
                    groups.insert(0, group)
                continue
            self._controls = controls or self._controls
            self._count(stages)
            for record in records:
                if record.variant in failed:
                    record = replace(record, rule=rules[record.variant])
                # A later group measures the baseline again; the first record, with the most variants, counts.
                if record.variant not in by_variant or by_variant[record.variant].state == "failed":
                    by_variant[record.variant] = record
        self._reference_clocks.learn(by_variant.values())
        records = list(by_variant.values())
        if "compile" not in costs:
            return records
        started = time.monotonic()
        records = self._compile_costs.added(self._host, suite, case, records)
        self._count({"cold compile": time.monotonic() - started})
        return records

    def _up(self) -> Worker:
        """Return the worker; start it if needed.

        Raises:
            WorkerDied: the worker does not start.
        """
        if self._worker is None:
            self._worker = self._make_worker(self._spec, self._silence_s)
            self._worker.say = self._say
            self._set_aside_other_host(self._worker.host)
            self._compile_first(self._worker.host)
        return self._worker

    def _compile_first(self, host: Mapping[str, str]) -> None:
        """Fill Triton's cache in parallel, once for each commit; a CPU has nothing to compile."""
        if host.get("device") != "cuda" or self._compiled or not (names := self._ahead()):
            return
        self._compiled = True
        started = time.monotonic()
        tree = Tree("this commit", self._spec.checkout.resolve(), self._spec.packages)
        suites = [suite for name, suite in load_suites(self._spec.benchmark_dir).items() if name in names]
        compiled = compile_ahead(tree, suites, CompileTarget.of_host(host), COMPILING_S, self._say)
        elapsed_s = time.monotonic() - started
        self._count({"compile": elapsed_s})
        if compiled:
            self._say(f"compiled the kernels of {self.target.commit[:8]} in {elapsed_s:.0f} s")

    def _count(self, stages: Mapping[str, float]) -> None:
        for name, seconds in stages.items():
            self._stages[name] = self._stages.get(name, 0.0) + seconds

    def _load(self, resume: bool) -> None:
        """Load the records of earlier runs, which stay in the file. When resuming, serve them instead of measuring."""
        path = self.target.path
        if path is None:
            return
        try:
            self._before, records = read_records(path)
        except FileNotFoundError:
            return
        except RecordError as error:
            stamp = datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")  # microseconds, so that no earlier file is overwritten
            broken = path.with_name(f"{path.stem}.{stamp}.broken")
            path.rename(broken)
            self._say(f"{error}. The file was renamed to {broken.name}; measuring starts again")
            return
        self._controls = self._before.controls
        self._records = {record.key: record for record in records}
        if resume:
            self._fresh, self._resumed = set(self._records), set(self._records)

    def _set_aside_other_host(self, host: Mapping[str, str]) -> None:
        """Rename the provenance file if its records are of another toolchain: a file holds records of one toolchain."""
        if self._before is None or self.target.path is None or dict(self._before.host) == dict(host):
            self._host = host
            return
        changed = [f"{k} {self._before.host.get(k)} → {v}" for k, v in host.items() if self._before.host.get(k) != v]
        stamp = "".join(character for character in self._before.recorded_at if character.isdigit())[:14]
        old = self.target.path.with_name(f"{self.target.path.stem}.{stamp}.old")
        self.target.path.rename(old)
        self._say(f"the toolchain changed ({', '.join(changed)}): earlier records are in {old.name}")
        self._records.clear()
        self._fresh.clear()
        self._before, self._host = None, host

    def _save(self) -> None:
        if self.target.path is None:
            return
        provenance = Provenance(
            commit=self.target.commit,
            environment=self.target.environment,
            machine=self.target.machine,
            recorded_at=self._before.recorded_at if self._before else self._recorded_at,
            harness=self.target.harness,
            clock_state=self.target.clock_state,
            host=dict(self._host),
            controls=self._controls,
            protocol=PROTOCOL_VERSION,
            spent_s=self.spent(),
        )
        ordered = sorted(self._records.values(), key=lambda record: record.key)
        write_records(self.target.path, provenance, ordered)


def _lacks(record: Record, costs: Sequence[str]) -> bool:
    """Return whether the record's case was measured without one of these costs: it has neither the cost's number nor
    the note why there is none. A variant that launches no Triton kernel has neither for "compile".
    """
    return record.state == "ok" and any(
        f"no {cost}:" not in record.note and not set(COSTS[cost]) & set(record.costs)
        for cost in costs
        if cost != "compile"
    )
