"""The recorder repeats what has the same work, times a sample of it, and stops where a sample contradicts."""

import sys

import pytest
from project import make_project

from lockstep.asv import copy_numbers
from lockstep.asv.copy_numbers import Timed
from lockstep.asv.recorder import Recorder
from lockstep.asv.survey import Planned
from lockstep.asv.worker_client import WorkerSpec
from lockstep.record.file import read_records
from lockstep.record.model import Estimate, Provenance, Record
from lockstep.suite.definition import PROTOCOL_VERSION
from lockstep.suite.discovery import load_suites
from lockstep.suite.family_files import sources_digest

HOST = {"device": "cuda", "capability": "9.0", "sm_count": "132", "gpu_uuid": "GPU-1", "torch": "2.11"}
CASES = ("M=2,K=1024,N=512", "M=3,K=1024,N=512")
PLAN = {("product", case, "warm"): Planned(["plain", "twice"]) for case in CASES}
VERSION = f"{PROTOCOL_VERSION}.1"
WORKS = {"plain": "work of plain", "twice": "work of twice"}


class Gpu:
    """Makes workers that answer with fixed works and ratios, and notes what is asked."""

    def __init__(self, works=WORKS, ratio=2.0):
        self.works_, self.ratio = works, ratio
        self.started, self.measured, self.looked, self.variants = 0, [], [], set()

    def __call__(self, spec, silence_s):
        self.started += 1
        self.host = HOST
        return self

    def works(self, suite, case, variants):
        self.looked.append(case)
        return self.works_

    def measure(self, suite, case, l2, variants, failed, **_):
        self.measured.append(case)
        self.variants |= set(variants)
        return [made(case, name, self.ratio) for name in dict.fromkeys(["plain", *variants])], {}, {}

    def close(self):
        pass


def made(case, variant, ratio, **fields):
    interval = Estimate(ratio, ratio * 0.999, ratio * 1.001)
    given = {"latency": Estimate(1e-6, 9e-7, 1.1e-6), "speedup": None if variant == "plain" else interval, **fields}
    return Record("product", variant, case, "warm", "ok", VERSION, **given)


@pytest.fixture
def project(tmp_path, monkeypatch):
    project = make_project(tmp_path / "project")
    for name in [name for name in sys.modules if name.split(".")[0] in ("toy", "benchmarks")]:
        monkeypatch.delitem(sys.modules, name)  # another test may have imported this repository's suites
    monkeypatch.syspath_prepend(str(project.root))
    monkeypatch.setattr("lockstep.asv.coordinator.compile_ahead", lambda *_: {})
    monkeypatch.setattr(copy_numbers, "SAMPLED", 10**9)
    yield project
    for name in [name for name in sys.modules if name.split(".")[0] in ("toy", "benchmarks")]:
        del sys.modules[name]


class Run:
    """A run that knows one timed commit, and measures others with one ``Timed``."""

    def __init__(self, project, sources=None):
        self.project, self.root, self.said = project, project.root, []
        suite = load_suites(self.root / "benchmarks")["product"]
        assert suite.benchmark_version == VERSION
        known = sources_digest(self.root, ("toy",), suite) if sources is None else sources
        self.timed = Timed(20)
        self.timed.add(
            "a" * 40,
            [made(case, name, 2.0, sources=known, work=WORKS[name]) for case in CASES for name in WORKS],
        )

    def commit(self, gpu, commit="c" * 40):
        self.path = path = self.root / "results" / f"{commit[:8]}.provenance.jsonl"
        spec = WorkerSpec(self.root, ("toy",), self.root / "benchmarks")
        stamp = "2026-11-28T12:00:00+00:00"
        provenance = Provenance(commit, "lockstep", "m", stamp, "h" * 40, "free", {}, {}, PROTOCOL_VERSION)
        recorder = Recorder(
            provenance, path, spec, 60.0, say=self.said.append, make_worker=gpu,
            plan=lambda: PLAN, repeats=lambda host: self.timed, host=HOST,
        )  # fmt: skip
        recorder.repeat()
        for suite, case, l2 in PLAN:
            for name in WORKS:
                recorder.record((suite, name, case, l2), VERSION, list(WORKS))
        recorder.worker.close()
        self.timed.add(commit, recorder.made())
        return {(record.variant, record.case): record.same_work_as for record in read_records(path)[1]}


def test_equal_files_start_no_process(project):
    gpu = Gpu()
    assert set(Run(project).commit(gpu).values()) == {"a" * 40}
    assert (gpu.started, gpu.looked, gpu.measured) == (0, [], [])


def test_equal_work_is_looked_at_once_a_case_and_not_timed(project):
    gpu, run = Gpu(), Run(project, "other files")
    assert set(run.commit(gpu).values()) == {"a" * 40}
    assert (gpu.started, gpu.looked, gpu.measured) == (1, list(CASES), [])
    assert "of 2 cases 0 have the same files as a timed commit and 2 the same work" in run.said[-1]


@pytest.mark.parametrize("changed", ["plain", "twice"])
def test_other_work_of_a_variant_is_timed_and_other_work_of_the_baseline_times_all(project, changed):
    gpu = Gpu(WORKS | {changed: "other"})
    found = Run(project, "other files").commit(gpu)
    assert gpu.measured == list(CASES)
    assert gpu.variants == ({"plain", "twice"} if changed == "plain" else {"twice"})
    assert {name for (name, _), same in found.items() if not same} == (
        {"plain", "twice"} if changed == "plain" else {"twice"}
    )


def test_a_case_that_is_timed_again_keeps_what_is_known_of_its_work(project):
    gpu, run = Gpu(WORKS | {"plain": "other"}), Run(project, "other files")
    first, again = run.commit(gpu), run.commit(gpu)
    assert set(first.values()) == set(again.values()) == {""}
    assert gpu.measured == [*CASES, *CASES]
    assert run.said[-1] == (
        "cccccccc: of 2 cases 0 have the same files as a timed commit and 0 the same work; "
        "0 of these and 2 others are timed"
    )
    for record in read_records(run.path)[1]:
        assert record.sources != ""
        assert record.work == {"plain": "other", "twice": "work of twice"}[record.variant]


def test_unknown_work_is_timed(project):
    gpu = Gpu({})
    assert set(Run(project, "other files").commit(gpu).values()) == {""}
    assert gpu.measured == list(CASES)


def test_a_sample_that_agrees_is_a_measurement_and_the_rest_repeats(project, monkeypatch):
    monkeypatch.setattr("lockstep.asv.survey.is_sampled", lambda commit, suite, case, l2: case == CASES[0])
    compiled = []
    monkeypatch.setattr("lockstep.asv.coordinator.compile_ahead", lambda *given: compiled.append(given))
    gpu, run = Gpu(ratio=2.01), Run(project)
    found = run.commit(gpu)
    assert gpu.measured == [CASES[0]]
    assert not compiled  # a suite's other cases are copies
    assert found == {(name, case): "" if case == CASES[0] else "a" * 40 for name in WORKS for case in CASES}
    assert not run.timed.stopped


def test_a_sample_that_contradicts_times_this_commit_and_the_rest_of_the_run(project, monkeypatch):
    monkeypatch.setattr("lockstep.asv.survey.is_sampled", lambda commit, suite, case, l2: case == CASES[0])
    gpu, run = Gpu(ratio=1.9), Run(project)
    assert set(run.commit(gpu).values()) == {""}
    assert set(gpu.measured) == set(CASES)
    [told] = [line for line in run.said if "was to repeat" in line]
    assert told == f"product twice {CASES[0]} warm was to repeat aaaaaaaa, but its speedup changed by -5.00%"
    monkeypatch.setattr("lockstep.asv.survey.is_sampled", lambda *_: False)
    assert set(run.commit(gpu, "d" * 40).values()) == {""}


def test_the_sample_is_the_same_in_each_run_and_has_its_share():
    chosen = [copy_numbers.is_sampled(f"{number:040x}", "s", "M=1", "cold") for number in range(5000)]
    assert chosen == [copy_numbers.is_sampled(f"{number:040x}", "s", "M=1", "cold") for number in range(5000)]
    assert 60 <= sum(chosen) <= 140
