"""A commit with the same work as a timed one repeats its numbers, and any other is timed: real runs on a CPU."""

import re
import shutil

import pytest
from project import KERNELS, Project, make_project

from lockstep.asv import copy_numbers
from lockstep.record.file import read_records

CASE = "M=2,K=1024,N=512"
BENCH = ("--bench", rf"(latency|speedup)\(.*'{CASE}', 'warm'")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    project = make_project(tmp_path_factory.mktemp("measured") / "project")
    run(project)
    return project


@pytest.fixture
def project(measured, tmp_path):
    return Project(shutil.copytree(measured.root, tmp_path / "project"))


def run(project, *options):
    done = project.lockstep("run", "HEAD^!", *BENCH, *options)
    assert done.returncode in (0, 2), done.stdout
    return done.stdout


def records(project, commit):
    [path] = (project.root / "results").glob(f"*-cpu/{commit[:8]}-lockstep.provenance.jsonl")
    return {record.variant: record for record in read_records(path)[1]}


def head(project):
    return project.git("rev-parse", "HEAD")


def unsampled(project, message):
    """Commit until the chance leaves the commit's case out of the sample."""
    commit = project.commit(message)
    while copy_numbers.is_sampled(commit, "product", CASE, "warm"):
        project.write("notes.txt", commit)
        commit = project.commit(message)
    return commit


def test_a_commit_with_the_same_files_repeats_the_numbers(project):
    first = head(project)
    project.write("toy/product.py", KERNELS + "\n    # A comment.\n")
    commit = unsampled(project, "Comment")
    printed = run(project)
    assert f"{commit[:8]}: of 1 cases 1 have the same files as a timed commit and 0 the same work" in printed
    before, after = records(project, first), records(project, commit)
    assert before.keys() == after.keys()
    for name, record in after.items():
        assert (record.same_work_as, record.latency, record.speedup) == (
            first,
            before[name].latency,
            before[name].speedup,
        )
        assert len(record.latency_samples) == (1 if record.latency else 0)
        assert before[name].same_work_as == ""
    shown = project.lockstep("show", commit).stdout
    assert re.search(r"product\.latency", shown)


def test_commits_with_the_same_files_start_one_worker_in_all(project):
    started = project.root / "started"
    suite = project.root / "benchmarks" / "product.py"
    note = f"import sys\nif 'worker' in sys.argv[0]:\n    open({str(started)!r}, 'a').write('x')\n"
    suite.write_text(note + suite.read_text())
    run(project, "--repeats", "0")  # the definition counts too
    started.unlink()
    commits = []
    for number in range(3):
        project.write("notes.txt", f"{number}")
        commits.append(unsampled(project, f"Note {number}"))
    (project.root / "commits").write_text("\n".join(commits))
    done = project.lockstep("run", "HASHFILE:commits", *BENCH)
    assert done.stdout.count("of 1 cases 1 have the same files") == 3, done.stdout
    assert started.read_text() == "x"  # the first tells the toolchain


def test_a_commit_with_other_files_is_timed(project):
    project.write(
        "toy/product.py",
        KERNELS.replace("return torch.mm(x, weight, out=out)", "return torch.mm(x, weight + 0, out=out)", 1),
    )
    commit = project.commit("Change")
    printed = run(project)
    assert f"{commit[:8]}: of 1 cases 0 have the same files" in printed
    assert {record.same_work_as for record in records(project, commit).values()} == {""}


@pytest.mark.thorough
def test_a_chain_of_commits_names_the_one_that_was_timed_and_ends_at_the_limit(project):
    first, commits = head(project), []
    for number in range(3):
        project.write("notes.txt", f"{number}")
        commits.append(unsampled(project, f"Note {number}"))
        run(project, "--repeats", "2")
    assert [records(project, commit)["plain"].same_work_as for commit in commits] == [first, first, ""]


@pytest.mark.thorough
def test_tuners_that_choose_again_are_timed(project):
    project.write("notes.txt", "note")
    commit = unsampled(project, "Note")
    run(project, "--retune")
    assert records(project, commit)["plain"].same_work_as == ""


@pytest.mark.thorough
def test_everything_is_timed_on_demand_and_a_timed_commit_is_timed_again(project):
    project.write("notes.txt", "note")
    commit = unsampled(project, "Note")
    run(project, "--repeats", "0")
    timed = records(project, commit)["plain"]
    assert timed.same_work_as == ""
    run(project)
    again = records(project, commit)["plain"]
    assert again.same_work_as == ""
    assert again.latency_samples != timed.latency_samples
    assert again.sources == timed.sources != ""


def test_another_version_of_the_suite_is_timed(project):
    suite = project.root / "benchmarks" / "product.py"
    text = suite.read_text()
    assert "    baseline" in text
    suite.write_text(text.replace("    baseline", "    version = 7\n    baseline", 1))
    project.write("notes.txt", "note")
    commit = project.commit("Version")
    run(project)
    assert records(project, commit)["plain"].same_work_as == ""
