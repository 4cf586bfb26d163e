"""Measure cases of one commit in a worker, and survive crashes of the worker.

A variant that kills or hangs a worker is found and recorded as failed; the rest of the commit is still measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from lockstep.asv.record_compile_times import CompileCosts
from lockstep.asv.worker_client import Worker, WorkerDied, WorkerSpec
from lockstep.machine_code.compiled_tree import compile_ahead
from lockstep.machine_code.targets import Target as CompileTarget
from lockstep.processes.watched_worker import HUNG, Culprits
from lockstep.record.model import Record
from lockstep.suite.commit_sources import Tree
from lockstep.suite.discovery import load_suites
from lockstep.timing.clocks.reference_clocks import ReferenceClocks

#: Advice for a variant that hung in its check, which compiles what was not compiled ahead.
_COMPILING = "; if it was compiling, a larger default_benchmark_timeout in asv.conf.json lets it finish"

#: Maximum seconds of compiling ahead.
COMPILING_S = 300.0


@dataclass
class CommitWorker:
    """Measures cases of one commit, in as many workers one after another as necessary.

    Attributes:
        commit: name of the commit, for messages.
        make_worker: creates a worker (tests pass their own).
        clocks: the reference clocks, to which those of first measurements are added.
        suites: returns the names of the suites whose kernels are compiled in parallel before the first case.
        started: called with the facts of the machine when a worker has started.
    """

    commit: str
    spec: WorkerSpec
    silence_s: float
    _: KW_ONLY
    say: Callable[[str], None] = print
    make_worker: Callable[[WorkerSpec, float], Worker] = Worker
    clocks: ReferenceClocks = field(default_factory=ReferenceClocks)
    suites: Callable[[], Collection[str]] = frozenset
    started: Callable[[Mapping[str, str]], None] = lambda host: None

    def __post_init__(self) -> None:
        self._worker: Worker | None = None
        self._host: Mapping[str, str] = {}
        self._culprits = Culprits()
        self._stillborn: WorkerDied | None = None
        self._unimportable: dict[str, WorkerDied] = {}
        self._compile_costs = CompileCosts(self.spec)
        self._compiled = False
        self._began = time.monotonic()
        self._stages: dict[str, float] = {}
        #: Times of the worker's controls so far, as ``lockstep.record.model.Provenance`` describes them.
        self.controls: Mapping[str, Mapping[str, float | str | None]] = {}

    @property
    def host(self) -> Mapping[str, str]:
        """Return facts of the machine from the worker; ``WorkerDied`` if it does not start."""
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
            variants: names of the variants; the baseline is added.
            version: benchmark version, for the records of series that cannot be measured.
            twins: variants that are measured a second time in the same run, as an A/A comparison.
        """

        def failed_record(variant: str, died: WorkerDied) -> Record:
            return Record(suite, variant, case, l2, "failed", version, died.how, died.rule)

        if dead := self._stillborn or self._unimportable.get(suite):
            return [failed_record(name, dead) for name in variants]
        by_variant: dict[str, Record] = {}
        failed = {name: refusal for name in variants if (refusal := self._culprits.refusal(suite, name))}
        rules = {name: self._culprits.rule(suite, name) for name in failed}
        groups = [variants]
        reference_mhz = self.clocks.of(suite, case, l2)
        while groups:
            group = groups.pop(0)
            try:
                records, controls, stages = self._up().measure(
                    suite, case, l2, group, failed, twins=twins, reference_mhz=reference_mhz, costs=costs
                )
            except WorkerDied as died:
                self.close()
                if died.at_start:
                    self._stillborn = died
                    self.say(f"the worker of {self.commit} does not start: {died.how}")
                    return [failed_record(name, died) for name in variants]
                if died.stage == "load":
                    self._unimportable[suite] = died
                    self.say(f"{suite}: {died.how}")
                    return [failed_record(name, died) for name in variants]
                culprit = died.variant or (group[0] if len(group) == 1 else "")
                if not culprit:
                    # The worker died while all variants were timed. Each variant is timed alone with the baseline to
                    # find the culprit.
                    groups = [[name] for name in group] + groups
                    continue
                advice = _COMPILING if died.rule == HUNG and died.stage == "check" else ""
                self.say(f"{suite} {culprit} at {case}, {l2} L2: {died.how}{advice}")
                failed[culprit], rules[culprit] = died.how, died.rule
                self._culprits.add(suite, culprit, died)
                if culprit in group and len(group) == 1:
                    by_variant[culprit] = failed_record(culprit, died)
                else:
                    groups.insert(0, group)
                continue
            self.controls = controls or self.controls
            self._count(stages)
            for record in records:
                if record.variant in failed:
                    record = replace(record, rule=rules[record.variant])
                # A later group measures the baseline again; the first record, with the most variants, counts.
                if record.variant not in by_variant or by_variant[record.variant].state == "failed":
                    by_variant[record.variant] = record
        self.clocks.learn(by_variant.values())
        records = list(by_variant.values())
        if "compile" not in costs:
            return records
        started = time.monotonic()
        records = self._compile_costs.added(self._host, suite, case, records)
        self._count({"cold compile": time.monotonic() - started})
        return records

    def works(self, suite: str, case: str, variants: Sequence[str]) -> Mapping[str, str]:
        """Return digests of the variants' work; nothing if a variant kills the worker, because measuring finds it."""
        try:
            return self._up().works(suite, case, variants)
        except WorkerDied as died:
            self.close()
            if died.at_start:
                raise
            return {}

    def run(self, arguments: Sequence[str], cwd: str) -> tuple[int, str]:
        """Run an ordinary asv benchmark in the worker; return its exit code and output."""
        try:
            return self._up().run(arguments, cwd)
        except WorkerDied as died:
            self.close()
            return 1, str(died)

    def spent(self) -> dict[str, float]:
        """Return the seconds of this run by stage. "rest" is asv, looking at work, and cases that killed a worker."""
        other_s = time.monotonic() - self._began - sum(self._stages.values())
        return {**self._stages, "rest": max(0.0, other_s)}

    def close(self) -> None:
        """End the worker and the compiler; the next request starts others."""
        self._compile_costs.close()
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _up(self) -> Worker:
        """Return the worker; start it if needed."""
        if self._worker is None:
            started = time.monotonic()
            self._worker = self.make_worker(self.spec, self.silence_s)
            self._count({"start": time.monotonic() - started})
            self._worker.say = self.say
            self._host = self._worker.host
            self.started(self._host)
            self._compile_first(self._host)
        return self._worker

    def _compile_first(self, host: Mapping[str, str]) -> None:
        """Fill Triton's cache in parallel, once for each commit; a CPU has nothing to compile."""
        names = self.suites()
        if host.get("device") != "cuda" or self._compiled or not names:
            return
        self._compiled = True
        started = time.monotonic()
        tree = Tree("this commit", self.spec.checkout.resolve(), self.spec.packages)
        suites = [suite for name, suite in load_suites(self.spec.benchmark_dir).items() if name in names]
        compiled = compile_ahead(tree, suites, CompileTarget.of_host(host), COMPILING_S, self.say)
        elapsed_s = time.monotonic() - started
        self._count({"compile": elapsed_s})
        if compiled:
            self.say(f"compiled the kernels of {self.commit} in {elapsed_s:.0f} s")

    def _count(self, stages: Mapping[str, float]) -> None:
        for name, seconds in stages.items():
            self._stages[name] = self._stages.get(name, 0.0) + seconds
