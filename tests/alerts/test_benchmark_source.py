"""A commit that changes another project's benchmark is noted, where the repository of the benchmark is at hand."""

import subprocess

import pytest

from lockstep.alerts.cause.benchmark_source import with_benchmark_changes
from lockstep.alerts.cause.commit_notes import notes, read_log
from lockstep.processes.git import Git

FILE = "asv/benchmarks/simulation/bench_kamino.py"
BENCHMARK = "simulation.bench_kamino.NotifyLegs.time_notify"
SOURCE = """\
import kamino

WORLDS = 64


def build():
    return kamino.build(WORLDS)


class _Base:
    repeat = 3


class NotifyLegs(_Base):
    number = 10

    def setup(self):
        self.model = build()

    def time_notify(self):
        self.model.notify()


class Other:
    def time_other(self):
        pass
"""


def noted(repo, *contents):
    """Commit each content of the benchmark's file, and return the names and files of the noted commits."""
    for number, content in enumerate((SOURCE, *contents)):
        for name, text in {FILE: content, "kamino/simulation.py": f"NotifyLegs = {number}\n"}.items():
            path = repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if not number:
            subprocess.run(["git", "init", "-q", "-b", "main"], cwd=repo, check=True)
        subprocess.run(["git", "add", "."], cwd=repo, check=True)
        who = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        subprocess.run(["git", *who, "commit", "-qm", f"{number}"], cwd=repo, check=True)
    git = Git(repo)
    commits = git.lines("rev-list", "--reverse", "HEAD")
    log = read_log(git, commits)
    plain = notes(commits, log, (), set(), "simulation.bench_kamino.NotifyLegs", ())
    found = with_benchmark_changes(plain, git, log, BENCHMARK)
    assert sorted(found, key=lambda note: note.touches != "benchmark") == list(found)
    return [(note.subject, note.files) for note in found if note.touches]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("number = 10", "number = 1"),
        ("repeat = 3", "repeat = 5"),
        ("WORLDS = 64", "WORLDS = 128"),
        ("return kamino.build(WORLDS)", "return kamino.build(WORLDS, warm=True)"),
    ],
)
def test_its_settings_base_class_constants_and_helpers_belong_to_it(tmp_path, old, new):
    assert noted(tmp_path, SOURCE.replace(old, new)) == [("1", (FILE,))]


@pytest.mark.parametrize(
    "content",
    [
        SOURCE.replace("pass", "time.sleep(1)"),
        SOURCE.replace("import kamino", "import os\n\nimport kamino"),
        SOURCE.replace("    number = 10", "    # ten calls\n    number = 10"),
        SOURCE + "\n\nclass Added:\n    repeat = 1\n",
        "",
        "class NotifyLegs(:",
    ],
)
def test_other_benchmarks_of_the_file_comments_and_removal_do_not_count(tmp_path, content):
    assert noted(tmp_path, content) == []


def test_a_table_that_nests_too_deeply_to_be_written_again_does_not_end_the_analysis(tmp_path):
    table = "\n\nSIZES = " + " + ".join(["[1]"] * 600) + "\n"
    changed = SOURCE.replace("number = 10", "number = 1")
    assert noted(tmp_path / "other", SOURCE + table, changed + table) == [("2", (FILE,))]
    used = SOURCE.replace("WORLDS = 64", "WORLDS = sum(SIZES)")
    assert noted(tmp_path / "used", used + table, used.replace("= 10", "= 1") + table) == []


def test_its_commits_come_first_the_newest_of_them_before_the_others(tmp_path):
    changed = SOURCE.replace("number = 10", "number = 1")
    assert noted(tmp_path, changed, changed, SOURCE, SOURCE) == [("3", (FILE,)), ("1", (FILE,))]


def test_without_the_repository_nothing_is_noted(tmp_path):
    assert with_benchmark_changes((), Git(tmp_path), {}, BENCHMARK) == ()
