"""An edit of the script that measures is not a change of the kernel."""

import json

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
