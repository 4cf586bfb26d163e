"""The work of many commits is asked for at once, and once for equal files."""

import sys
import threading

import pytest
from project import KERNELS, make_project

from lockstep.asv.ask_works_ahead import Scouts, without_records
from lockstep.asv.survey import Planned
from lockstep.asv.worker_client import WorkerDied, WorkerSpec
from lockstep.suite.discovery import load_suites

CASE = "M=2,K=1024,N=512"
PLAN = {("product", CASE, l2): Planned(["plain", "twice"]) for l2 in ("cold", "warm")}


class Fake:
    """A worker that answers with the text of its kernels, or dies."""

    def __init__(self, spec, silence_s):
        self.text = (spec.checkout / "toy" / "product.py").read_text()
        self.closed, self.host = False, {"device": "cpu"}
        if "at_start" in self.text:
            raise WorkerDied("", "does not start", at_start=True)
        Fake.made.append(self)

    def works(self, suite, case, variants):
        Fake.asked.append((suite, case, tuple(variants)))
        if "dies" in self.text:
            raise WorkerDied("plain", "killed")
        return dict.fromkeys(variants, self.text)

    def close(self):
        self.closed = True


@pytest.fixture
def project(tmp_path, monkeypatch):
    Fake.made, Fake.asked, Fake.lock = [], [], threading.Lock()
    project = make_project(tmp_path / "project")
    # The suite imports from the project's package.
    for name in [name for name in sys.modules if name.split(".")[0] in ("toy", "benchmarks")]:
        monkeypatch.delitem(sys.modules, name)  # another test may have imported this repository's suites
    monkeypatch.syspath_prepend(str(project.root))
    yield project
    for name in [name for name in sys.modules if name.split(".")[0] in ("toy", "benchmarks")]:
        del sys.modules[name]


def look(project, commits):
    suites = load_suites(project.root / "benchmarks")
    spec = WorkerSpec(project.root, ("toy",), project.root / "benchmarks")
    said = []
    scouts = Scouts(spec, project.root, suites, 60.0, said.append, make_worker=Fake)
    scouts.ask(commits, PLAN)
    return scouts.works, said


def test_commits_with_equal_files_are_asked_once(project):
    first = project.git("rev-parse", "HEAD")
    project.write("notes.txt", "note")
    second = project.commit("Note")
    project.write(
        "toy/product.py",
        KERNELS.replace("return torch.mm(x, weight, out=out)", "return torch.mm(x + 0, weight, out=out)", 1),
    )
    third = project.commit("Change")
    works, said = look(project, [first, second, third])
    assert said[0].startswith("looking at the work of 2 of 3 commits")
    assert len(works) == len(Fake.asked) == 2
    assert {texts["plain"].count("x + 0") for texts in works.values()} == {0, 1}
    assert all(worker.closed for worker in Fake.made)


def test_work_that_tuning_made_known_is_asked_for_once_more(project, monkeypatch):
    commits = [project.git("rev-parse", "HEAD")]
    for number in (1, 2):
        project.write("toy/product.py", f"{KERNELS}\n    NUMBER = {number}\n")
        commits.append(project.commit("Change"))
    tuned = project.root / "tuned.json"
    answer = Fake.works

    def untuned(self, suite, case, variants):
        known = answer(self, suite, case, variants)
        return known if tuned.exists() or "NUMBER = 1" in self.text else known | {"twice": ""}

    monkeypatch.setattr(Fake, "works", untuned)
    spec = WorkerSpec(project.root, ("toy",), project.root / "benchmarks", tuned=tuned)
    said = []
    scouts = Scouts(spec, project.root, load_suites(project.root / "benchmarks"), 60.0, said.append, make_worker=Fake)
    assert scouts.curious
    scouts.ask(commits, PLAN)
    assert not scouts.curious  # nothing was tuned since
    tuned.write_text("{}")
    assert scouts.curious
    scouts.ask(commits[1:], PLAN)
    assert said[1].startswith("looking at the work of 1 of 2 commits")
    assert sum("" in found.values() for found in scouts.works.values()) == 1  # the first commit's, which was measured
    tuned.write_text("{ }")
    assert not scouts.curious


@pytest.mark.parametrize("how", ["dies", "at_start"])
def test_a_commit_that_kills_its_worker_is_left_to_the_measurement(project, how):
    first = project.git("rev-parse", "HEAD")
    project.write("toy/product.py", KERNELS + f"\n    {how} = 1\n")
    second = project.commit("Break")
    works, _ = look(project, [first, second, "0" * 40])
    assert len(works) == 1
    assert all(worker.closed for worker in Fake.made)


def test_a_run_that_goes_on_looks_at_commits_without_records_only(tmp_path):
    (tmp_path / "aaaaaaaa-lockstep.provenance.jsonl").touch()
    assert without_records(["a" * 40, "b" * 40], tmp_path, "lockstep") == ["b" * 40]
    assert without_records(["a" * 40], tmp_path / "absent", "lockstep") == ["a" * 40]
