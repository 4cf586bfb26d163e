"""The recorder: what kills a worker is found and recorded, everything else is measured, nothing is lost."""

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.asv.recorder import Recorder
from lockstep.asv.survey import Planned
from lockstep.asv.worker_client import WorkerDied, WorkerSpec
from lockstep.processes.watched_worker import PATIENCE
from lockstep.record.file import read_records
from lockstep.record.model import Clocks, Estimate, Provenance, Record
from lockstep.suite.definition import PROTOCOL_VERSION
from lockstep.timing.stage_times import summary

SPEC = WorkerSpec(Path("checkout"), ("kernels",), Path("benchmarks"))
HOST = {"device": "cpu", "torch": "2.11"}
BASE = "base"


class Fleet:
    """Makes workers; variants in ``kills`` end one: while "check"ing, or while "time"d with others."""

    def __init__(self, kills=None, host=HOST, stillborn=""):
        self.kills = kills or {}
        self.host = host
        self.stillborn = stillborn
        self.started = self.closed = 0
        #: Every request: case, variants, and what was known to fail.
        self.asked = []
        #: The clocks that each asked to be told at, and the one that its arms met.
        self.reference_mhz = []
        self.met_mhz = None
        self.value = 1e-6

    def __call__(self, spec, silence_s):
        assert (spec, silence_s) == (SPEC, 60.0)
        if self.stillborn:
            raise WorkerDied("", self.stillborn, at_start=True)
        self.started += 1
        return FakeWorker(self)


class FakeWorker:
    def __init__(self, fleet):
        self.fleet = fleet
        self.host = fleet.host
        self.alive = True

    def measure(self, suite, case, l2, variants, failed, twins=(), reference_mhz=None, costs=()):
        assert self.alive
        self.fleet.asked.append((case, tuple(variants), dict(failed)))
        self.fleet.reference_mhz.append(dict(reference_mhz))
        names = list(dict.fromkeys([BASE, *variants]))
        for stage in ("check", "time"):
            for name in names:
                if self.fleet.kills.get(name) == stage and name not in failed:
                    self.alive = False
                    raise WorkerDied(name if stage == "check" else "", f"killed in {stage}")
        records = [
            Record(suite, name, case, l2, "ok", "v1", latency=Estimate(*[self.fleet.value] * 3)) for name in names
        ]
        met = self.fleet.met_mhz
        records = [replace(one, clocks=Clocks(told_mhz=reference_mhz.get(one.variant, met))) for one in records]
        records = [
            replace(one, state="failed", latency=None, reason=failed[one.variant]) if one.variant in failed else one
            for one in records
        ]
        return records, {"copy": {"seconds": 1.0}}, {"time": 2.0, "check": 1.0}

    def run(self, arguments, cwd):
        if arguments == ["die"]:
            self.alive = False
            raise WorkerDied("", "killed by SIGSEGV")
        return 0, f"{arguments} in {cwd}"

    def close(self):
        self.alive = False
        self.fleet.closed += 1


COMMIT = Provenance("c" * 40, "lockstep", "m", "2026-11-28T12:00:00+00:00", "h" * 40, "cpu", {}, {}, PROTOCOL_VERSION)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m" / "abc-lockstep.provenance.jsonl"


@pytest.fixture
def make(path):
    said = []

    def make_one(fleet, resume=False, path=path):
        return Recorder(COMMIT, path, SPEC, 60.0, resume=resume, say=said.append, make_worker=fleet)

    make_one.said = said
    return make_one


def measure(recorder, case="M=1", variants=(BASE, "a", "b"), version="v1"):
    """State and reason of each variant, asked one by one as asv does."""
    records = [recorder.record(("s", name, case, "warm"), version, variants) for name in variants]
    return {record.variant: (record.state, record.reason) for record in records}


OK = ("ok", "")


@pytest.mark.parametrize("names", [{"norm_linear"}, set()], ids=["one suite", "none"])
def test_only_the_kernels_of_suites_that_are_measured_are_compiled_ahead(path, monkeypatch, names):
    compiled = []

    def compile_ahead(tree, suites, *rest):
        compiled.append([suite.name for suite in suites])
        return False

    monkeypatch.setattr("lockstep.asv.coordinator.compile_ahead", compile_ahead)
    host = {**HOST, "device": "cuda", "gpu": "NVIDIA H200", "capability": "9.0", "sm_count": "132"}
    spec = replace(SPEC, benchmark_dir=Path(__file__).parents[2] / "benchmarks")
    recorder = Recorder(
        COMMIT,
        path,
        spec,
        60.0,
        make_worker=lambda *_: FakeWorker(Fleet(host=host)),
        plan=lambda: {(name, "M=1", "cold"): Planned(["a"]) for name in names},
    )
    measure(recorder)
    measure(recorder, case="M=2")
    assert compiled == ([sorted(names)] if names else [])


def test_a_case_is_measured_once_for_all_its_variants(make, path):
    fleet = Fleet()
    recorder = make(fleet)
    assert measure(recorder) == {BASE: OK, "a": OK, "b": OK}
    assert fleet.asked == [("M=1", (BASE, "a", "b"), {})]
    provenance, records = read_records(path)
    assert [record.variant for record in records] == ["a", "b", BASE]
    assert (provenance.commit, provenance.host, provenance.controls) == ("c" * 40, HOST, {"copy": {"seconds": 1.0}})
    recorder.worker.close()
    assert fleet.closed == fleet.started == 1


def test_where_the_time_went_is_stored_and_adds_up(make, path):
    recorder = make(Fleet())
    measure(recorder)
    measure(recorder, "M=2")
    spent = read_records(path)[0].spent_s
    assert (spent["time"], spent["check"], spent["rest"]) == (4.0, 2.0, 0.0)
    assert summary(recorder.worker.spent()) == "6 s: time 4 s (67 %), check 2 s (33 %), start 0 s (0 %), rest 0 s (0 %)"
    assert summary(make(Fleet()).worker.spent()) == ""


def test_another_ruler_is_measured_anew(make):
    fleet = Fleet()
    recorder = make(fleet)
    measure(recorder)
    assert recorder.served(("s", "a", "M=1", "warm"), "v1") is not None
    assert recorder.served(("s", "a", "M=1", "warm"), "v2") is None


def test_what_dies_in_its_check_fails_alone(make):
    fleet = Fleet({"a": "check"})
    states = measure(make(fleet))
    assert states == {BASE: OK, "a": ("failed", "killed in check"), "b": OK}
    assert fleet.started == 2
    assert fleet.asked[1] == ("M=1", (BASE, "a", "b"), {"a": "killed in check"})
    assert make.said == ["s a at M=1, warm L2: killed in check"]


def test_what_dies_while_all_are_timed_is_found_one_by_one(make):
    fleet = Fleet({"b": "time"})
    recorder = make(fleet)
    assert measure(recorder) == {BASE: OK, "a": OK, "b": ("failed", "killed in time")}
    assert [asked[1] for asked in fleet.asked] == [(BASE, "a", "b"), (BASE,), ("a",), ("b",)]
    recorder.worker.close()
    assert fleet.closed == fleet.started


def test_two_culprits_are_both_found(make):
    fleet = Fleet({"a": "time", "b": "check"})
    states = measure(make(fleet), variants=(BASE, "a", "b", "c"))
    assert states == {BASE: OK, "a": ("failed", "killed in time"), "b": ("failed", "killed in check"), "c": OK}


@pytest.mark.parametrize(
    ("stage", "variants"), [("check", (BASE, "a")), ("check", ("a",)), ("check", ("a", BASE)), ("time", (BASE, "a"))]
)
def test_a_baseline_that_dies_takes_no_other_along(make, stage, variants):
    assert measure(make(Fleet({BASE: stage})), variants=variants) == {
        name: ("failed", f"killed in {stage}") if name == BASE else OK for name in variants
    }


def test_what_died_often_enough_is_not_tried_again(make):
    fleet = Fleet({"a": "check"})
    recorder = make(fleet)
    for number in range(PATIENCE):
        assert measure(recorder, f"M={number}")["a"] == ("failed", "killed in check")
    started = fleet.started
    assert measure(recorder, "M=99") == {
        BASE: OK,
        "a": ("failed", "not tried: killed in check at 2 earlier cases"),
        "b": OK,
    }
    assert fleet.started == started
    assert fleet.asked[-1][2] == {"a": "not tried: killed in check at 2 earlier cases"}


def test_a_worker_that_never_starts_is_tried_once(make, path):
    fleet = Fleet(stillborn="ended with exit status 1 at start: ImportError: no torch")
    recorder = make(fleet)
    reason = ("failed", fleet.stillborn)
    assert measure(recorder) == {BASE: reason, "a": reason, "b": reason}
    fleet.stillborn = "asked again"
    assert measure(recorder, "M=2")["a"] == reason
    assert make.said == [f"the worker of cccccccc does not start: {reason[1]}"]
    assert len(read_records(path)[1]) == 6


def test_a_finished_file_is_resumed_without_a_worker(make):
    measure(make(Fleet()))
    fleet = Fleet()
    recorder = make(fleet, resume=True)
    assert measure(recorder) == {BASE: OK, "a": OK, "b": OK}
    assert fleet.started == 0
    measure(recorder, "M=2")
    assert [asked[0] for asked in fleet.asked] == ["M=2"]


def test_without_resuming_everything_is_measured_again_and_other_cases_stay(make, path):
    recorder = make(Fleet())
    measure(recorder)
    measure(recorder, "M=2")
    fleet = Fleet()
    fleet.value = 2e-6
    measure(make(fleet))
    latencies = {record.case: record.latency.value for record in read_records(path)[1]}
    assert latencies == {"M=1": 2e-6, "M=2": 1e-6}


def test_each_commit_is_told_at_the_clocks_that_the_first_one_met(make, path):
    fleet = Fleet()
    fleet.met_mhz = 1650.0
    measure(make(fleet), variants=(BASE, "a"))
    later = Fleet()
    later.met_mhz = 1500.0
    measure(make(later, path=path.with_name("def-lockstep.provenance.jsonl")))
    assert fleet.reference_mhz == [{}]
    assert later.reference_mhz == [{BASE: 1650.0, "a": 1650.0}]
    told = {
        one.variant: one.clocks.told_mhz for one in read_records(path.with_name("def-lockstep.provenance.jsonl"))[1]
    }
    assert told == {BASE: 1650.0, "a": 1650.0, "b": 1500.0}


def test_another_toolchain_sets_the_old_file_aside(make, path):
    measure(make(Fleet()))
    before = path.read_bytes()
    recorder = make(Fleet(host={**HOST, "torch": "2.12"}))
    measure(recorder, "M=2")
    [kept] = path.parent.glob("*.old")
    assert kept.read_bytes() == before
    provenance, records = read_records(path)
    assert provenance.host["torch"] == "2.12"
    assert {record.case for record in records} == {"M=2"}
    assert make.said == [f"the toolchain changed (torch 2.11 → 2.12): earlier records are in {kept.name}"]


def test_corrupt_files_are_kept_and_measuring_goes_on(make, path):
    path.parent.mkdir()
    for number, text in enumerate(("{half a li", "{another"), 1):
        path.write_text(text)
        assert measure(make(Fleet())) == {BASE: OK, "a": OK, "b": OK}
        kept = sorted(path.parent.glob("*.broken"))
        assert len(kept) == number
        assert kept[-1].read_text() == text
        assert len(read_records(path)[1]) == 3
        assert "line 1: key must be a string" in make.said[-1]
        assert f"renamed to {kept[-1].name}" in make.said[-1]


def test_without_a_path_nothing_is_written(make, tmp_path):
    assert measure(make(Fleet(), path=None))["a"] == OK
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_benchmark_runs_in_the_worker_and_its_death_is_told(make):
    fleet = Fleet()
    recorder = make(fleet)
    assert recorder.worker.run(["x"], "/here") == (0, "['x'] in /here")
    assert recorder.worker.run(["die"], "/here") == (1, "worker: killed by SIGSEGV")
    assert recorder.worker.run(["x"], "/here")[0] == 0
    assert fleet.started == 2


def test_compile_times_are_added_where_they_are_asked_for(make):
    recorder = make(Fleet())
    [asked, *_] = recorder.worker.measure("s", "M=1", "warm", [BASE], "v1", costs=["compile"])
    assert asked.note == "no compile: no GPU here to compile for"
    assert recorder.worker.spent()["cold compile"] >= 0
    [silent, *_] = recorder.worker.measure("s", "M=2", "warm", [BASE], "v1")
    assert silent.note == ""
