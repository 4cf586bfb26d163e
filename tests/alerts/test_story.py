"""The story of an alert: one order and one set of words, whoever prints it."""

import subprocess
from dataclasses import replace

import pytest
from alerting import COMMITS, alerts, series, step
from history import Here, commits_of, write_history

from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.cause.commit_notes import CommitNote, notes, read_log
from lockstep.alerts.cause.source_diff import source_diff
from lockstep.alerts.database.alert_row import Tracked, from_json, to_json
from lockstep.alerts.story import tell
from lockstep.history.store import Store
from lockstep.notify.feed import atom
from lockstep.notify.message import alert_message
from lockstep.processes.git import Git, GitError
from lockstep.record.figure_meanings import meaning
from lockstep.suite.thresholds import Thresholds

KERNEL = {"name": "matmul", "code": "aa", "registers": 168, "spills": 0, "shared": 49152, "mix": {"BAR": 4, "all": 900}}
SPILLING = {**KERNEL, "code": "bb", "registers": 255, "spills": 512, "mix": {"BAR": 4, "STL": 8, "all": 1000}}


def found():
    """An alert of three commits, the second of which touches the kernel's file."""
    one = step(9, 11)
    sides = (
        replace(side, code={"kernels": [kernel], "host": "h"})
        for side, kernel in zip((one.before, one.after), (KERNEL, SPILLING), strict=True)
    )
    before, after = sides
    [alert] = alerts(replace(one, before=before, after=after))
    log = {
        COMMITS[9]: ("Ada", "2026-11-01", "Word the readme", ("README.md",)),
        COMMITS[10]: ("Bo", "2026-11-02", "Widen the tile", ("kernels/linear/triton.py", "README.md")),
        COMMITS[11]: ("Ada", "2026-11-03", "Split kda", ("kernels/kda.py",)),
    }
    told = notes(alert.commits, log, ("kernels",), {COMMITS[10], COMMITS[11]}, "linear", ("triton", "matmul"))
    return replace(alert, notes=told, owner="team-linear")


def test_it_is_told_in_the_order_in_which_a_reader_asks():
    assert list(tell(found(), 7).lines()) == [
        "lost: at least 4.3 % of its time is lost, > 99.9 % sure",
        "     +5.0 % (+4.6 … +5.4 %)  linear.triton M=8,K=64 cold",
        f"since: one of 3 commits: {COMMITS[8][:12]}..{COMMITS[11][:12]}",
        f"  {COMMITS[10][:8]} 2026-11-02 Bo: Widen the tile (kernels/linear/triton.py)",
        "  and 2 other commits of the range",
        "why: own commit: a commit changed it: matmul registers 168 → 255, matmul spills 0 B → 512 B, "
        "matmul instructions 900 → 1000, matmul STL 0 → 8",
        "  matmul registers 168 → 255: fewer warps may fit on a multiprocessor, so it hides less latency",
        "  matmul spills 0 B → 512 B: registers no longer suffice: values go through local memory, "
        "which costs loads and stores",
        "  matmul shared 49152 B: the same",
        "  matmul instructions 900 → 1000: longer code: more unrolling, another path, or more address arithmetic",
        "  matmul STL 0 → 8: stores of spilled registers",
        "who: team-linear owns it; the commits above are by Bo",
        "next: find the commit: lockstep bisect 7",
        *(line for line in tell(found(), 7).lines() if "measure it again: lockstep gate --base" in line),
        f"next: compare the machine code: lockstep code diff {COMMITS[8][:12]} {COMMITS[11][:12]} --family linear",
        'next: the new level is correct: lockstep alerts new-baseline 7 --because "…"',
        'next: nothing changed: lockstep alerts no-change 7 --because "…"',
        'next: be silent until a day: lockstep alerts mute 7 --until YYYY-MM-DD --because "…"',
    ]


def test_of_many_authors_three_are_named():
    alert = found()
    [note, *_] = alert.notes
    by = tuple(replace(note, author=name) for name in ("Ada", "Bo", "Cyd", "Dee", "Eve", "Ada"))
    assert "who: team-linear owns it; the commits above are by Ada, Bo, Cyd and 2 others" in [
        *tell(replace(alert, notes=by), 7).lines()
    ]


def test_a_tuned_table_is_as_near_as_the_kernel_itself():
    changed = {"Word a comment": "kernels/linear/triton.py", "Tune": "kernels/linear/tables/h200.toml"}
    changed["Another kernel"] = "kernels/linear/stream.py"
    log = {COMMITS[at]: ("Ada", "2026-11-01", words, (path,)) for at, (words, path) in enumerate(changed.items())}
    told = notes(COMMITS[:3], log, ("kernels",), COMMITS[:3], "linear", ("triton",))
    assert [note.subject for note in told] == ["Tune", "Word a comment", "Another kernel"]


def test_it_says_how_the_worst_series_was_measured():
    [alert] = alerts(step(9, noise=0.0031, clock="locked@1500", copied=2))
    assert tell(alert).measured == (
        "noise 0.31 % from commit to commit, clocks locked@1500, 2 points beside the change are copies of the same work"
    )
    assert f"measured: {tell(alert).measured}" in tell(alert).lines()
    assert from_json(to_json(alert)) == alert
    [unknown] = alerts(step(9))
    assert not [line for line in tell(unknown).lines() if line.startswith("measured:")]


def test_it_takes_no_variant_for_the_one_that_users_call():
    """No suite states which variant dispatches to the others, and other repositories have none called best."""
    for steps in ([step(9, by=0.2)], [step(9, by=0.2), step(9, name=series(variant="best", case="M=1"))]):
        [alert] = alerts(*steps)
        assert "users" not in "\n".join(tell(alert).lines())


def test_facts_are_those_of_all_changed_series():
    steps = []
    for case, name, registers in (("M=1", "matmul", 255), ("M=2", "reduce", 200), ("M=3", "matmul", 222)):
        one = step(9, name=series(case=case), by=0.5 if case == "M=1" else 0.05)
        old, new = (
            {**KERNEL, "name": name, "code": code, "registers": n} for code, n in (("a", 168), ("b", registers))
        )
        sides = [
            replace(side, code={"kernels": [kernel], "host": "h"})
            for side, kernel in zip((one.before, one.after), (old, new), strict=True)
        ]
        steps.append(replace(one, before=sides[0], after=sides[1]))
    [alert] = alerts(*steps)
    registers = [(fact.kernel, fact.after) for fact in tell(alert).facts if fact.what == "registers"]
    assert registers == [("matmul", "255"), ("reduce", "200")]


def test_message_and_feed_print_the_same_story():
    tracked = Tracked(7, "f", found(), "new", "", None, 0, 0)
    body = alert_message(tracked).body
    for line in tell(found(), 7).lines():
        assert line in body.splitlines()
    feed = atom([tracked])
    assert "Bo: Widen the tile (kernels/linear/triton.py)" in feed
    assert "registers no longer suffice" in feed


def test_no_two_hashes_are_evidence():
    other = {**KERNEL, "code": "bb"}
    one = step(9)
    sides = [
        replace(side, code={"kernels": [k], "host": "h"}) for side, k in ((one.before, KERNEL), (one.after, other))
    ]
    [alert] = alerts(replace(one, before=sides[0], after=sides[1]))
    text = "\n".join(tell(alert).lines())
    assert "why: own commit: a commit changed it: matmul machine code changed" in text
    assert "  matmul registers 168: the same" in text
    assert "aa" not in text.replace("bench", "")
    assert "bb" not in text


def test_an_alert_keeps_its_notes_and_is_read_with_what_an_earlier_version_knew():
    assert from_json({**to_json(found()), "doubt": ""}) == found()
    older = {name: value for name, value in to_json(found()).items() if name != "notes"}
    assert from_json(older).notes == ()


def test_notes_come_from_git(tmp_path):
    def git(*command):
        return subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("config", "user.name", "Ada <a\tb>")
    git("config", "user.email", "ada@example.org")
    for number in range(3):
        (tmp_path / f"f{number}.py").write_text("x")
        git("add", ".")
        git("commit", "-q", "-m", f"Add file {number}\n\nA body\n\nf9.py")
    commits = git("log", "--format=%H").split()
    log = read_log(Git(tmp_path), [*commits[:2], "0" * 40])
    assert log.keys() == set(commits[:2])
    author, day, subject, files = log[commits[0]]
    assert (author.startswith("Ada"), len(day), subject, files) == (True, 10, "Add file 2", ("f2.py",))
    assert read_log(Git(tmp_path), []) == {}
    assert read_log(Git(tmp_path / "none"), commits) == {}


@pytest.mark.parametrize(
    ("figure", "before", "after", "words"),
    [
        ("registers", "10", "10", "the same"),
        ("shared", "8 B", "4 B", "a smaller tile"),
        ("instructions", "1000", "1001", "nearly as long"),
        ("LDGSTS", "4", "8", "asynchronous copies"),
        ("NEW", "4", "8", ""),
    ],
)
def test_a_difference_has_a_usual_meaning(figure, before, after, words):
    assert meaning(figure, before, after).startswith(words)
    assert bool(meaning(figure, before, after)) == bool(words)


def test_commits_are_listed_up_to_a_limit():
    many = tuple(CommitNote(commit, "Ada", "2026-11-01", "x") for commit in COMMITS)
    told = tell(replace(found(), notes=many, commits=tuple(COMMITS)))
    assert sum(" Ada: x" in line for line in told.lines(limit=4)) == 4
    assert "  and 16 more commits" in list(told.lines(limit=4))


def test_the_source_stands_side_by_side(tmp_path):
    def git(*command):
        return subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.org")
    ends = []
    for text in ("a\nb\nc\n--- d\n", "a\nB\nc\ne\nf\n"):
        (tmp_path / "k.py").write_text(text)
        (tmp_path / "other.py").write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", "x")
        ends.append(git("rev-parse", "HEAD").strip())
    head, *rows = source_diff(Git(tmp_path), *ends, ["k.py"])
    assert (head.file, head.before) == ("k.py", None)
    sides = [(row.before and row.before.text, row.after and row.after.text) for row in rows]
    assert sides == [("a", "a"), ("b", "B"), ("c", "c"), ("--- d", "e"), (None, "f")]
    assert [row.same for row in rows] == [True, False, True, False, False]
    assert (rows[-1].after.number, rows[3].before.number) == (5, 4)
    with pytest.raises(GitError):
        source_diff(Git(tmp_path), "0" * 40, ends[1], ["k.py"])


@pytest.mark.parametrize(
    ("best", "words"),
    [
        (1.0, "`best` takes `torch` at this case: its time did not change"),
        (0.9, "`best` takes `torch` at this case: its time fell by "),
        (1.05, ""),
        (None, ""),
    ],
)
def test_it_says_whether_the_variant_that_dispatches_is_as_fast_as_before(tmp_path, best, words):
    commits = commits_of(tmp_path / "repo", 24)

    def plan(n):
        late = n >= 12
        return Here(slower=1.1 if late else 1.0, best=best and (best if late else 1.0))

    write_history(tmp_path / "results", "gpu", commits, plan)
    _, found = analyse_store(
        Store.open(tmp_path / "results", cache=tmp_path / "cache"), Thresholds(), tmp_path / "repo"
    )
    [alert] = [alert for alert in found.alerts if alert.topic == "slower"]
    assert tell(alert).best.startswith(words)
    assert bool(tell(alert).best) == bool(words)
    assert from_json(to_json(alert)) == alert
    if words:
        assert f"best: {tell(alert).best}" in tell(alert).lines()
        told = replace(alert, best_takes="")
        assert tell(told).best.startswith("the time of `best` ")
