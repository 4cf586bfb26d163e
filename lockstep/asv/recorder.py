"""Measure the records of one commit, each once, or repeat those of a commit with the same work.

The provenance file is replaced after each case, so an interrupted run loses at most one case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from lockstep.asv.ask_works_ahead import Works
from lockstep.asv.coordinator import CommitWorker
from lockstep.asv.copy_numbers import Timed, contradiction, lacks
from lockstep.asv.survey import Planned, Survey
from lockstep.asv.worker_client import Worker, WorkerSpec
from lockstep.record.file import RecordError, read_records, set_aside, write_records
from lockstep.record.model import Provenance, Record
from lockstep.record.script_facts import all_scripts
from lockstep.suite.discovery import load_suites
from lockstep.suite.family_files import sources_digest
from lockstep.timing.clocks.reference_clocks import NAME, ReferenceClocks

Key = tuple[str, str, str, str]


@dataclass
class Recorder:
    """Measures cases of one commit on demand.

    Attributes:
        provenance: what is known of the commit and the machine before it is measured.
        path: file of the records; ``None`` to store nothing.
        plan: returns the variants and costs that will be asked for, by suite, case and cache state.
        works: returns what is known of the work of this commit and others.
        repeats: returns the timed records whose numbers cases with the same work repeat; ``None`` to time every case.
    """

    provenance: Provenance
    path: Path | None
    spec: WorkerSpec
    silence_s: InitVar[float]
    _: KW_ONLY
    resume: InitVar[bool] = False
    say: Callable[[str], None] = print
    make_worker: InitVar[Callable[[WorkerSpec, float], Worker]] = Worker
    plan: Callable[[], Mapping[tuple[str, str, str], Planned]] = dict
    repeats: Callable[[Mapping[str, str]], Timed | None] = lambda host: None
    host: Mapping[str, str] | None = None
    works: Callable[[], Works] = dict

    def __post_init__(self, silence_s: float, resume: bool, make_worker: Callable[[WorkerSpec, float], Worker]) -> None:
        self._records: dict[Key, Record] = {}
        self._fresh: set[Key] = set()
        self._resumed: set[Key] = set()
        self._before: Provenance | None = None
        self._host: Mapping[str, str] = {}
        self._works: dict[tuple[str, str], Mapping[str, str]] = {}
        self._sources: dict[str, str] = {}
        self._repeated: set[Key] = set()
        self._to_compile: Collection[str] | None = None
        #: Measures the commit; nothing that it measures is stored.
        self.worker = CommitWorker(
            self.provenance.commit[:8],
            self.spec,
            silence_s,
            say=self.say,
            make_worker=make_worker,
            clocks=ReferenceClocks(self.path and self.path.with_name(NAME)),
            suites=self._compiled_ahead,
            started=self._set_aside_other_host,
        )
        self._load(resume)

    def served(self, key: Key, version: str) -> Record | None:
        """Return a series' record from this run, or from an earlier run when resuming; ``None`` if there is none."""
        record = self._records.get(key)
        return record if record and key in self._fresh and record.version == version else None

    def record(self, key: Key, version: str, variants: Sequence[str], costs: Sequence[str] = ()) -> Record:
        """Return the record of a series; measure its case with all ``variants`` and ``costs`` if needed."""
        known = self.served(key, version)
        if known is not None and not (key in self._resumed and lacks(known, costs)):
            return known
        suite, variant, case, l2 = key
        # Copies are not timed. The baseline is timed again, because a ratio needs both in one process.
        names = [name for name in dict.fromkeys([*variants, variant]) if (suite, name, case, l2) not in self._repeated]
        self._take(self.worker.measure(suite, case, l2, names, version, costs=costs), self._repeated)
        self._save()
        return self._records[key]

    def _take(self, records: Iterable[Record], but: Collection[Key] = ()) -> None:
        """Keep new records, with what is known of their work, but not those of series in ``but``."""
        for new_record in records:
            if new_record.key in but:
                continue
            sources, before = self._sources.get(new_record.suite, ""), self._records.get(new_record.key)
            work = self._works.get((new_record.suite, new_record.case), {}).get(new_record.variant, "")
            if before is not None and before.sources == sources != "" and before.version == new_record.version:
                work = work or before.work  # a timed case that is timed again is not looked at again
            known = replace(new_record, sources=sources, work=work)
            self._records[new_record.key] = known
            self._fresh.add(new_record.key)
            self._resumed.discard(new_record.key)

    def repeat(self) -> None:
        """Repeat the numbers of timed commits for the planned series with the same work; time a sample of them.

        Raise ``WorkerDied`` if the worker does not start.
        """
        suites = load_suites(self.spec.benchmark_dir)
        tree = self.spec.checkout.resolve()
        asked = {case: planned for case, planned in self.plan().items() if not planned.covered(case, self._fresh)}
        self._sources = {
            suite: sources_digest(tree, self.spec.packages, suites[suite]) for suite in {case[0] for case in asked}
        }
        # Whoever asks for a timed case again wants another measurement.
        timed_here = {key for key, record in self._records.items() if record.state == "ok" and not record.same_work_as}
        plan = {case: planned for case, planned in asked.items() if not planned.touches(case, timed_here)}
        host = self.host or self.worker.host
        timed = self.repeats(host)
        if timed is None or timed.stopped:
            return
        self._set_aside_other_host(host)
        survey = Survey(self.provenance.commit, suites, plan, self._sources, timed, tree)
        looks = bool(survey.open()) and host.get("device") == "cuda"
        known = self.works() if looks else {}
        # What was looked at is compiled, and the few copies that are timed as a sample compile what they call.
        self._to_compile = {
            suite for suite, case, _ in survey.open() if (suite, self._sources[suite], case) not in known
        }
        if looks:

            def worked(suite: str, case: str, variants: Sequence[str]) -> Mapping[str, str]:
                looked = known.get((suite, self._sources[suite], case))
                # A kernel that was not tuned yet could not be looked at.
                return self.worker.works(suite, case, variants) if looked is None or "" in looked.values() else looked

            survey.look(worked)
            self._works = survey.works
        self.say(survey.summary(len(asked) - len(plan)))
        for case in survey.sampled:
            stored, planned = survey.found.pop(case), plan[case]
            version = suites[case[0]].benchmark_version
            records = self.worker.measure(*case, list(planned.variants), version, costs=planned.costs)
            self._take(records)
            for record in records:
                if how := contradiction(stored.get(record.key), record):
                    self.say(f"{' '.join(record.key)} was to repeat {stored[record.key].same_work_as[:8]}, but {how}")
                    self.say("this run times every case from here on")
                    timed.stopped = True
                    self._save()
                    return
        repeats = {key: record for found in survey.found.values() for key, record in found.items()}
        self._repeated = set(repeats)
        self._records |= repeats
        self._fresh |= self._repeated
        if self._fresh:
            self._save()

    def made(self) -> list[Record]:
        """Return the records that this run measured or repeated."""
        return [self._records[key] for key in self._fresh - self._resumed]

    def _compiled_ahead(self) -> Collection[str]:
        """Return the names of the suites whose kernels are compiled before the first case."""
        return {suite for suite, _, _ in self.plan()} if self._to_compile is None else self._to_compile

    def _load(self, resume: bool) -> None:
        """Load the records of earlier runs, which stay in the file. When resuming, serve them instead of measuring."""
        path = self.path
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
            self.say(f"{error}. The file was renamed to {broken.name}; measuring starts again")
            return
        self.worker.controls = self._before.controls
        self._records = {record.key: record for record in records}
        if resume:
            self._fresh, self._resumed = set(self._records), set(self._records)

    def _set_aside_other_host(self, host: Mapping[str, str]) -> None:
        """Rename the provenance file if its records are of another toolchain: a file holds records of one toolchain."""
        host = {**host, **(all_scripts(self._before.host) if self._before else {})}
        if self._before is None or self.path is None or dict(self._before.host) == dict(host):
            self._host = host
            return
        changed = [f"{k} {self._before.host.get(k)} → {v}" for k, v in host.items() if self._before.host.get(k) != v]
        old = set_aside(self.path, self._before.recorded_at)
        self.say(f"the toolchain changed ({', '.join(changed)}): earlier records are in {old.name}")
        self._records.clear()
        self._fresh.clear()
        self._before, self._host = None, host

    def _save(self) -> None:
        if self.path is None:
            return
        provenance = replace(
            self.provenance,
            recorded_at=(self._before or self.provenance).recorded_at,
            host=dict(self._host),
            controls=self.worker.controls,
            spent_s=self.worker.spent(),
        )
        ordered = sorted(self._records.values(), key=lambda record: record.key)
        write_records(self.path, provenance, ordered)
