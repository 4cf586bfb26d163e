"""asv environment type "lockstep": one worker for each commit, with the current benchmark definitions and harness.

asv starts a process for each parameter; with torch that costs 2.7 s of imports for each number. Here one worker imports
torch and the packages under test from a checkout of the commit, and its measurements answer asv's requests. asv's
``Spawner.run`` always calls ``Environment.run`` with ``[".../benchmark.py", "run", …]`` (asv 0.6.6), so overriding that
method is enough.
"""

from __future__ import annotations

import ast
import atexit
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asv import util
from asv.environment import Environment
from asv.machine import Machine

from lockstep.asv.ask_works_ahead import Scouts, Works, without_records
from lockstep.asv.copy_numbers import Timed
from lockstep.asv.progress_display import Progress
from lockstep.asv.recorder import Key, Recorder
from lockstep.asv.survey import Case, Planned
from lockstep.asv.undiscovered_benchmarks import cost_entries
from lockstep.asv.worker_client import WorkerDied, WorkerSpec
from lockstep.processes.end_with_parent import tied
from lockstep.processes.started_process import HOME
from lockstep.record.file import records_path
from lockstep.record.model import Provenance, Record
from lockstep.record.provenance import harness_commit
from lockstep.record.quantity import COST_QUANTITIES, COSTS, MEASURED_TYPES, cost_of
from lockstep.suite.definition import PROTOCOL_VERSION
from lockstep.suite.discovery import Workspace
from lockstep.timing.stage_times import summary
from lockstep.timing.tuners.choices import NAME as TUNED


@dataclass
class RunOptions:
    """Options of ``lockstep run`` that asv does not pass to an environment. They are set on asv's conf object.

    Attributes:
        machine: asv's machine name.
        clock_state: clock state that is stored with every result.
        quick: whether to measure as briefly as possible, only to find errors.
        resume: whether to use the records of an interrupted run instead of measuring again.
        save: whether to write to the results folder.
        costs: costs to measure beside those that suites state, names of ``lockstep.record.quantity.COSTS``.
        retune: whether tuners choose for themselves. Otherwise all commits take the choices that the results hold.
        tuned: another file of the tuners' choices than that of the results folder.
        host: facts of the machine; ``None`` if only a worker knows them.
        repeats: how often the numbers of a commit are repeated for commits with the same work; 0 times every case.
        timed: the timed records of this machine, once they are read.
        range: the commits that asv will measure, as far as they are known.
        scouts: ask for the work of these commits, and hold it.
        commits: number of commits to measure, for the estimate of the time left; ``None`` if unknown.
        returns: filled by asv after discovery, with the selected benchmarks among other results.
        environments: the environments created so far, to close them.
    """

    machine: str
    clock_state: str
    quick: bool = False
    resume: bool = False
    save: bool = True
    costs: Sequence[str] = ()
    retune: bool = False
    tuned: Path | None = None
    commits: int | None = None
    host: Mapping[str, str] | None = None
    repeats: int = 0
    timed: Timed | None = None
    range: Sequence[str] = ()
    scouts: Scouts | None = None
    returns: dict[str, Any] = field(default_factory=dict)
    environments: list[LockstepEnvironment] = field(default_factory=list)


class LockstepEnvironment(Environment):  # type: ignore[misc]  # asv has no types
    """asv's environment for one commit: this interpreter, a checkout of the commit, and a worker that measures it."""

    tool_name = "lockstep"

    def __init__(self, conf: Any, python: str, requirements: dict[str, str], tagged_env_vars: dict[Any, str]) -> None:
        # asv's constructor reads these two before setting them.
        self._python, self._requirements = python, requirements
        self._conf = conf
        super().__init__(conf, python, requirements, tagged_env_vars)
        self._benchmarks: dict[str, dict[str, Any]] = {}
        self._recorder: Recorder | None = None
        self._progress: Progress | None = None
        self._requested: set[Case] = set()
        options = getattr(conf, "lockstep_run", None)
        self._options = options or RunOptions(Machine.get_unique_machine_name(), "unknown")
        self._options.environments.append(self)
        self._planned: dict[Case, Planned] = {}
        # asv may end by an error, and no worker may outlive the run.
        atexit.register(self.close)

    @property
    def name(self) -> str:
        """Return one name for all toolchains: the toolchain is provenance and does not start a series."""
        return "lockstep"

    @classmethod
    def matches(cls, python: str) -> bool:
        """Return whether ``python`` is the version that runs asv."""
        return python == f"{sys.version_info[0]}.{sys.version_info[1]}"

    def check_presence(self) -> bool:
        """Return True: the environment is this interpreter."""
        return True

    @property
    def installed_commit_hash(self) -> str | None:
        """Return ``None``, so that asv always asks for the commit that it needs; a checkout is cheap."""
        return None

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        """Check out the commit. Nothing is built or installed."""
        self.close()
        Path(self._path).mkdir(parents=True, exist_ok=True)
        # The folder ignores itself: `git add -A` would take the checkout in it as a nested repository.
        (Path(self._path) / ".gitignore").write_text("*\n", encoding="utf-8")
        self.checkout_project(repo, commit_hash)
        results, workspace = Path(conf.results_dir).resolve(), Workspace.of(conf)
        records = records_path(results / self._options.machine, commit_hash, self.name)
        provenance = Provenance(
            commit_hash,
            self.name,
            self._options.machine,
            datetime.now(UTC).isoformat(timespec="seconds"),
            harness_commit(Path(conf.benchmark_dir), results),
            self._options.clock_state,
            host={},
            controls={},
            protocol=PROTOCOL_VERSION,
        )
        spec = WorkerSpec(
            checkout=Path(self._build_root) / self._repo_subdir,
            packages=workspace.packages,
            benchmark_dir=workspace.benchmark_dir,
            quick=self._options.quick,
            tuned=(self._options.tuned or results / TUNED) if self._options.save else None,
            retune=self._options.retune,
        )
        self._requested.clear()
        self._recorder = Recorder(
            provenance,
            records if self._options.save else None,
            spec,
            float(conf.default_benchmark_timeout),
            resume=self._options.resume,
            say=self._say,
            plan=self._plan,
            repeats=self._timed,
            host=self._options.host,
            works=lambda: self._works(spec),
        )

    def run(self, args: list[str], **kwargs: Any) -> Any:
        """Answer asv's ``run`` requests from the worker. Start a process for all other requests."""
        if len(args) > 1 and args[1] in ("discover", "check"):
            Workspace.of(self._conf)  # raises what asv would print with the traceback of its discovery
        if len(args) > 1 and args[1] == "run" and self._recorder is not None:
            return self._answer(args[2:], str(kwargs.get("cwd", ".")))
        # asv's script drops PYTHONPATH from sys.path and takes this variable instead.
        paths = [str(HOME), os.environ.get("PYTHONPATH", "")]
        kwargs["env"] = {**kwargs.get("env", os.environ), "ASV_PYTHONPATH": os.pathsep.join(filter(None, paths))}
        output = util.check_output(tied([sys.executable, *args]), **kwargs)
        if len(args) > 1 and args[1] == "discover":
            path = Path(args[3])
            benchmarks = {benchmark["name"]: benchmark for benchmark in json.loads(path.read_text(encoding="utf-8"))}
            quantities = [quantity for name in self._options.costs for quantity in COSTS[name]]
            self._benchmarks = {
                entry["name"]: entry for entry in cost_entries(benchmarks.values(), quantities)
            } | benchmarks
            path.write_text(json.dumps(list(self._benchmarks.values())), encoding="utf-8")
        return output

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._progress is not None:
            self._progress.finish()
        if self._recorder is not None:
            # The worker is closed first: an interruption of the lines below must not leave it running.
            recorder, self._recorder = self._recorder, None
            recorder.worker.close()
            if self._options.timed is not None:
                self._options.timed.add(recorder.provenance.commit, recorder.made())
            if spent := summary(recorder.worker.spent()):
                self._say(f"{recorder.provenance.commit[:8]}: {spent}")

    def _answer(self, arguments: list[str], cwd: str) -> tuple[str, str, int]:
        """Return output, standard error and exit code of one request by asv."""
        assert self._recorder is not None
        _, identity, parameters, _, result_file = arguments
        name, _, index = identity.partition("-")
        benchmark = self._benchmarks.get(name, {})
        if benchmark.get("type") not in MEASURED_TYPES:
            code, out = self._recorder.worker.run(arguments, cwd)
            return out, "", code
        if json.loads(parameters).get("repeat") == 1 and not self._options.quick:
            return "--quick works through `lockstep run --quick`, not through asv's own command", "", 1
        combination = next(itertools.islice(itertools.product(*benchmark["params"]), int(index), None))
        record = self._measured(_key(benchmark, combination), benchmark)
        if record.state == "failed":
            return f"{record.variant} at {record.case}, {record.l2} L2: {record.reason}", "", 1
        samples = _samples(record, benchmark["quantity"])
        result = {"samples": samples, "number": 1} if samples else math.nan  # asv's form of "n/a"
        Path(result_file).write_text(json.dumps(result), encoding="utf-8")
        return "", "", 0

    def _measured(self, key: Key, benchmark: Mapping[str, Any]) -> Record:
        assert self._recorder is not None
        suite, _, case, l2 = key
        plan = self._plan()
        if self._progress is None:
            self._progress = Progress(len(plan), self._options.commits)
        if not self._requested:
            self._progress.begin(self._recorder.provenance.commit)
            with suppress(WorkerDied):  # measuring the first case says why
                self._recorder.repeat()
        first = (suite, case, l2) not in self._requested
        self._requested.add((suite, case, l2))
        known = self._recorder.served(key, benchmark["version"]) is not None
        planned = plan.get((suite, case, l2), Planned())
        started = time.monotonic()
        record = self._recorder.record(key, benchmark["version"], planned.variants, planned.costs)
        if first:
            series = [(suite, name, case, l2) for name in planned.variants]
            records = [self._recorder.served(one, benchmark["version"]) for one in series]
            self._progress.case(
                [record for record in records if record], time.monotonic() - started, measured=not known
            )
        return record

    @property
    def discovered(self) -> bool:
        """Return whether asv has discovered the benchmarks."""
        return bool(self._benchmarks)

    def _plan(self) -> dict[Case, Planned]:
        """Return the selected variants of every selected case, and the costs selected with them."""
        if not self._planned:
            # ``lockstep run --bench`` selects parameters; asv's own command selects all.
            selected = self._options.returns.get("benchmarks")
            for name, benchmark in self._benchmarks.items():
                if benchmark.get("type") not in MEASURED_TYPES or (selected is not None and name not in selected):
                    continue
                indices = selected.benchmark_selection.get(name) if selected is not None else None
                for index, combination in enumerate(itertools.product(*benchmark["params"])):
                    if indices is None or index in indices:
                        suite, variant, case, l2 = _key(benchmark, combination)
                        planned = self._planned.setdefault((suite, case, l2), Planned())
                        if variant not in planned.variants:
                            planned.variants.append(variant)
                        if (cost := cost_of(benchmark["quantity"])) and cost not in planned.costs:
                            planned.costs.append(cost)
            if left_out := sorted(set(self._options.costs).difference(*(one.costs for one in self._planned.values()))):
                self._say(f"--bench selects no series of {', '.join(left_out)}: leave the quantity out of the pattern")
        return self._planned

    def _works(self, spec: WorkerSpec) -> Works:
        """Return the work of all commits of this run, which is asked for at once, before the first is timed."""
        options = self._options
        first = options.scouts is None
        if options.scouts is None:
            suites = Workspace.of(self._conf).suites
            silence_s = float(self._conf.default_benchmark_timeout)
            options.scouts = Scouts(spec, spec.checkout, suites, silence_s, self._say)
        if options.scouts.curious:
            commits = options.range
            if options.resume or not first:
                results = Path(self._conf.results_dir).resolve() / options.machine
                commits = without_records(commits, results, self.name)
            if len(commits) > 1:
                options.scouts.ask(commits, self._plan())
        return options.scouts.works

    def _timed(self, host: Mapping[str, str]) -> Timed | None:
        """Return the timed records of this machine, which are read once in a run; ``None`` to time every case."""
        options = self._options
        options.host = options.host or host  # later commits need no worker to learn it
        if not options.repeats or not options.save or options.retune:
            return None
        if options.timed is None:
            folder = Path(self._conf.results_dir).resolve() / options.machine
            options.timed = Timed.read(folder, host, options.repeats)
        return options.timed

    def _say(self, line: str) -> None:
        if self._progress is not None:
            self._progress.say(line)
        else:
            print(line, file=sys.stderr)


def _key(benchmark: Mapping[str, Any], combination: Sequence[str]) -> Key:
    """Return the series of a combination of a benchmark's parameters, as asv writes them."""
    variant, case, l2 = (str(ast.literal_eval(value)) for value in combination)
    return benchmark["suite"], variant, case, l2


def _samples(record: Record, quantity: str) -> list[float]:
    """Return a record's samples of a latency, speedup or cost; [] if it has none."""
    if quantity in COST_QUANTITIES:
        return [record.costs[quantity].value] if quantity in record.costs else []
    return list(record.latency_samples if quantity == "latency" else record.speedup_samples)
