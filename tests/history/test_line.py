"""Commits on the first-parent line of the tracked branch are compared with one another; others stand apart."""

import json
import subprocess
import sys

import pytest
from measured_repository import DAY, Repository
from trees import DATE, open_store, write_plain


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repo", tmp_path / "results")


def hashes(commits):
    return [commit.hash for commit in commits]


def trend(results):
    [one] = results.trends()
    return one.value.tolist()


def merged(repository):
    """A branch that forks before main becomes slower, and is merged after it. Return the commits by their names."""
    named = {"base": repository.commit("base", 1.0)}
    repository.switch("-c", "side")
    repository.switch("main")
    named["slow"] = repository.commit("slow", 1.3)
    repository.switch("side")
    named["side"] = repository.commit("side", 1.0)
    repository.switch("main")
    named["merge"] = repository.commit("merge", 1.3, "merge", "-q", "--no-ff", "-m", "merge", "side")
    return named


def test_the_inside_of_a_merged_branch_stands_apart_at_its_fork(repository):
    named = merged(repository)
    results = repository.read()
    assert hashes(results.commits("box")) == [named["base"], named["slow"], named["merge"]]
    assert trend(results) == [1.0, 1.3, 1.3]
    [side] = results.apart("box")
    assert (side.hash, side.fork, side.base) == (named["side"], named["base"], named["base"])
    assert results.place_of("box", side.hash) == 0


def test_an_unmerged_branch_stands_apart_at_its_fork(repository):
    repository.commit("one", 1.0)
    fork = repository.commit("not measured")
    repository.switch("-c", "experiment")
    first, second = (repository.commit(f"experiment {number}", 2.0) for number in range(2))
    repository.switch("main")
    repository.commit("two", 1.0)
    results = repository.read()
    assert trend(results) == [1.0, 1.0]
    assert [(commit.hash, commit.fork) for commit in results.apart("box")] == [(first, fork), (second, fork)]
    # The fork itself has no results, so the commit compares with the newest measured commit before it.
    assert results.place_of("box", second) == 0
    assert "2 of 4 measured commits are off the line of main" in results.line_note


def test_a_branch_that_merged_main_forks_where_it_last_met_main(repository):
    repository.commit("one", 1.0)
    repository.switch("-c", "experiment")
    repository.commit("experiment")
    repository.switch("main")
    two = repository.commit("two", 1.0)
    repository.switch("experiment")
    repository.commit("again", 2.0, "merge", "-q", "--no-ff", "-m", "again", "main")
    [experiment] = repository.read().apart("box")
    assert experiment.fork == two


def test_commits_from_before_a_rebase_are_off_the_line(repository, tmp_path):
    base = repository.commit("base", 1.0)
    old = repository.commit("old", 2.0)
    repository.git("reset", "-q", "--hard", base)
    new = repository.commit("new", 1.1)
    results = repository.read()
    assert hashes(results.commits("box")) == [base, new]
    assert hashes(results.apart("box")) == [old]
    # A new clone does not have the old commit, but it has newer ones.
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", f"file://{repository.folder}", clone], check=True)
    results = repository.read(clone, cache=tmp_path / "other-cache")
    assert hashes(results.commits("box")) == [base, new]
    [stranger] = results.apart("box")
    assert (stranger.hash, stranger.fork, results.place_of("box", old)) == (old, "", -1)


def test_a_shallow_clone_names_the_commits_that_it_cannot_place(repository, tmp_path):
    measured = [repository.commit(f"commit {number}", 1.0 + number) for number in range(6)]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "2", f"file://{repository.folder}", clone], check=True)
    results = repository.read(clone)
    assert hashes(results.commits("box")) == measured
    assert results.line_note.startswith("4 measured commits cannot be placed by git and stand by date (")
    assert measured[0][:8] in results.line_note
    assert "git fetch --unshallow" in results.line_note
    subprocess.run(["git", "-C", clone, "fetch", "-q", "--unshallow"], check=True)
    assert repository.read(clone).line_note == ""


def test_a_shallow_clone_keeps_other_peoples_commits_off_the_line(repository, tmp_path):
    """A commit of the line that is newer than the clone's end would be in the clone."""
    for _ in range(4):
        repository.commit("line", 1.0)
    repository.switch("-c", "experiment")
    experiment = repository.commit("experiment", 2.0)
    repository.switch("main")
    repository.commit("line", 1.0)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "3", f"file://{repository.folder}", clone], check=True)
    results = repository.read(clone)
    assert hashes(results.apart("box")) == [experiment]
    assert [commit.by_date for commit in results.commits("box")] == [True, True, False, False, False]


def test_an_alert_among_commits_that_git_cannot_place_says_so(repository, tmp_path):
    for level in [1.0] * 8 + [1.5] * 12:
        repository.commit("one", level)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "2", f"file://{repository.folder}", clone], check=True)
    places = ("--results", repository.results, "--repo", clone, "--cache", tmp_path / "cache")
    options = [*map(str, places), "--state", str(tmp_path / "alerts.sqlite")]

    def said(*words):
        command = [sys.executable, "-m", "lockstep", "alerts", *words, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout

    assert "18 measured commits cannot be placed by git and stand by date" in said("list")
    shown = said("show", "1")
    assert "dates give their order" in shown
    assert "in the order of their dates, and the commits in between are unknown: `git fetch --unshallow`" in shown


def test_a_clone_that_lacks_newer_commits_keeps_them_on_the_line(repository, tmp_path):
    measured = [repository.commit("old", 1.0)]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", f"file://{repository.folder}", clone], check=True)
    measured.append(repository.commit("new", 2.0))
    results = repository.read(clone)
    assert hashes(results.commits("box")) == measured
    assert "the clone lacks newer commits: `git fetch`" in results.line_note


def test_a_local_branch_behind_the_remote_does_not_hide_the_remotes_commits(repository, tmp_path):
    measured = [repository.commit("old", 1.0)]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", f"file://{repository.folder}", clone], check=True)
    measured.append(repository.commit("new", 2.0))
    subprocess.run(["git", "-C", clone, "fetch", "-q"], check=True)
    results = repository.read(clone)
    assert (hashes(results.commits("box")), results.line_note) == (measured, "")


def test_the_configuration_names_the_branch(repository):
    fork = repository.commit("one", 1.0)
    repository.switch("-c", "release")
    release = repository.commit("release", 2.0)
    repository.switch("main")
    main = repository.commit("two", 1.0)
    results = repository.read(branches=["release"])
    assert hashes(results.commits("box")) == [fork, release]
    assert hashes(results.apart("box")) == [main]
    assert "The repository has no branch gone" in repository.read(branches=["gone"]).line_note


def test_a_tracked_branch_that_the_clone_lacks_is_named(repository):
    repository.commit("one", 1.0)
    note = repository.read(branches=["release", "main"]).line_note
    assert note == "The repository has no branch release: `git fetch origin` may bring it."


def test_the_line_of_the_first_tracked_branch_counts(repository):
    commits = [repository.commit("main", 1.0)]
    repository.switch("-c", "release")
    commits.append(repository.commit("release", 2.0))
    assert repository.read(branches=["release", "main"]).apart("box") == ()
    assert hashes(repository.read(branches=["main", "release"]).apart("box")) == commits[1:]


def test_a_moved_branch_changes_the_line_without_new_results(repository):
    repository.commit("one", 1.0)
    repository.switch("-c", "experiment")
    experiment = repository.commit("experiment", 2.0)
    store = open_store(repository.results, repo=repository.folder)
    assert hashes(store.current().apart("box")) == [experiment]
    repository.git("branch", "-f", "main", "experiment")
    store.refresh()
    assert store.current().apart("box") == ()
    assert trend(store.current()) == [1.0, 2.0]


def test_measurements_of_a_new_branch_alone_follow_that_branch(repository):
    repository.commit("not measured")
    repository.switch("-c", "experiment")
    measured = [repository.commit(f"experiment {number}", 1.0) for number in range(2)]
    results = repository.read()
    assert hashes(results.commits("box")) == measured
    assert "No measured commit is on main" in results.line_note


def test_a_machine_that_measured_no_commit_of_the_line_shows_its_own(repository):
    repository.commit("one", 1.0)
    repository.switch("-c", "experiment")
    experiment = repository.commit("experiment")
    write_plain(repository.results, {"s.time_f": 3.0}, machine="laptop", commit=experiment, date=DATE + 2 * DAY)
    results = repository.read()
    assert hashes(results.commits("laptop")) == [experiment]
    assert (results.on_line("laptop"), results.on_line("box")) == (False, True)


def test_a_detached_head_is_the_line_where_no_branch_exists(repository, tmp_path):
    measured = [repository.commit(f"commit {number}", 1.0) for number in range(2)]
    repository.git("checkout", "-q", "--detach")
    repository.git("branch", "-D", "main")
    results = repository.read()
    assert (hashes(results.commits("box")), results.apart("box")) == (measured, ())


def test_without_a_repository_the_dates_give_the_order(repository, tmp_path):
    measured = [repository.commit(f"commit {number}", 1.0) for number in range(2)]
    outside = tmp_path / "outside"
    outside.mkdir()
    results = repository.read(outside)
    assert hashes(results.commits("box")) == measured
    assert "because there is no git repository" in results.line_note


@pytest.mark.parametrize("apart", ["merged", "unmerged"])
def test_commits_off_the_line_open_no_alert_and_the_right_commit_is_named(repository, apart, tmp_path):
    for _ in range(8):
        repository.commit("fast", 1.0)
    repository.git("branch", "side")
    for _ in range(4):
        repository.commit("fast", 1.0)
    slow = repository.commit("slow", 1.3)
    for _ in range(10):
        repository.commit("slow already", 1.3)
    repository.switch("side")
    for _ in range(5):
        repository.commit("side", 1.0 if apart == "merged" else 2.0)
    repository.switch("main")
    if apart == "merged":
        repository.commit("merge", 1.3, "merge", "-q", "--no-ff", "-m", "merge", "side")
    for _ in range(10):
        repository.commit("slow already", 1.3)
    places = ("--results", repository.results, "--repo", repository.folder, "--cache", tmp_path / "cache")
    command = [sys.executable, "-m", "lockstep", "changes", "--json", *map(str, places)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout)
    assert [(change["commits"], change["sense"]) for change in found["changes"]] == [([slow], "worse")]
    assert "5 of" in found["line"]
