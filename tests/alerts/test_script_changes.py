"""An edit of the script that measures is not a change of the kernel."""

import json
import subprocess

import pytest
from history import Here, commits_of, write_history
from verb import run_verb

NUMBER, SLOW = 24, 12


def causes(capfd, monkeypatch, tmp_path, host, touch=lambda n: True):
    """Return the causes of changes in a script's series, without asv.conf.json; ``host`` are facts at a commit."""
    commits = commits_of(tmp_path / "repo", NUMBER, touch)
    monkeypatch.chdir(tmp_path / "repo")
    write_history(
        tmp_path / "repo/results",
        "h200",
        commits,
        lambda n: Here(slower=1.2 if n >= SLOW else 1.0, host=host(n)),
        suite="bench_norm",
    )
    run_verb("changes", "--json", "--cache", tmp_path / "cache")
    return [one["cause"] for one in json.loads(capfd.readouterr().out)["changes"] if one["variant"] == "triton"]


def test_a_script_that_changed_with_the_times_is_the_cause(capfd, monkeypatch, tmp_path):
    """It was *own commit*, more than 99.9 % sure, although two lines of the script had been swapped."""
    found = causes(capfd, monkeypatch, tmp_path, lambda n: {"script bench_norm": "after" if n >= SLOW else "before"})
    assert {one["kind"] for one in found} == {"protocol"}
    assert {one["sentence"] for one in found} == {"it is measured differently: benchmark script before → after"}


@pytest.mark.parametrize(
    "host",
    [
        {"script other": "SIDE", "script bench_norm": "the same"},
        {"script other": "SIDE"},
        {},
    ],
    ids=["another script", "unknown", "nothing"],
)
def test_another_script_is_not_the_cause(capfd, monkeypatch, tmp_path, host):
    def at(n):
        return {name: value.replace("SIDE", str(n >= SLOW)) for name, value in host.items()}

    assert {one["kind"] for one in causes(capfd, monkeypatch, tmp_path, at)} == {"own commit"}


def test_a_commit_that_touches_the_script_alone_is_not_blamed(capfd, monkeypatch, tmp_path):
    """Without an asv.conf.json the packages under test were unknown, so each commit counted."""
    facts = {"script bench_norm": "the same", "packages of bench_norm": "kernels"}
    found = causes(capfd, monkeypatch, tmp_path, lambda n: facts, touch=lambda n: n < SLOW)
    assert {one["kind"] for one in found} == {"unexplained"}
    assert "no commit in the range touches the packages under test" in found[0]["sentence"]


ACCEPTED = """
[[accept]]
match = { suite = "bench_norm" }
slower_by = "90 %"
of = ["COMMIT"]
because = "exact rounding"
"""


@pytest.mark.parametrize(("why", "status"), [("kernel", 1), ("script", 0), ("accepted", 0)])
def test_changes_and_alerts_end_with_the_same_status(capfd, monkeypatch, tmp_path, why, status):
    """``changes`` ended with 1 for a slowdown that the machine or the protocol caused, or that was accepted."""
    facts = {"script bench_norm": "before"}
    changed = facts | ({"script bench_norm": "after"} if why == "script" else {})
    causes(capfd, monkeypatch, tmp_path, lambda n: changed if n >= SLOW else facts)
    if why == "accepted":
        commits = subprocess.check_output(["git", "rev-list", "--reverse", "main"], text=True).split()
        (tmp_path / "repo/thresholds.toml").write_text(ACCEPTED.replace("COMMIT", commits[SLOW][:12]))
    places = ("--cache", tmp_path / "cache")
    found = [run_verb("changes", *places), run_verb("alerts", "list", *places, "--state", tmp_path / "alerts.sqlite")]
    printed = capfd.readouterr().out
    assert found == [status, status], printed
    assert "6 slower" in printed or "3 slower" in printed
