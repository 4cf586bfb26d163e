"""Commits off the line: pages show them apart, with their size against the commit where they forked."""

import pytest
from compared import each
from measured_repository import Repository
from trees import analysed, open_store

from dashboard.address import CommitAddress
from dashboard.pages import commit as commit_page
from dashboard.pages import compare as compare_page
from dashboard.pages import machines as machines_page
from dashboard.server.app import create_app
from lockstep.compare.at_commit import compare_commit
from lockstep.suite.thresholds import Thresholds


@pytest.fixture
def place(tmp_path):
    """Results of a line of three commits, and of an experiment that forked at the second and is half as fast."""
    repository = Repository(tmp_path / "repo", tmp_path / "results")
    line = [repository.commit(f"line {number}", 0.01) for number in range(2)]
    repository.switch("-c", "experiment")
    experiment = repository.commit("an experiment", 0.02)
    repository.switch("main")
    line.append(repository.commit("line 2", 0.01))
    store = open_store(repository.results, repo=repository.folder)
    return store, analysed(store, repository.folder), line, experiment


def test_the_page_of_a_commit_off_the_line_compares_with_the_fork(place):
    store, findings, line, experiment = place
    results = store.current()
    text = words(commit_page.layout(results, CommitAddress(experiment[:8])))
    assert f"apart from the line, forked at {line[1][:8]}" in text
    assert f"compared with {line[1][:8]}" in text
    found, earlier_of = compare_commit(results, "box", experiment, findings.of_machine(results, "box"), Thresholds())
    [one] = each(found)
    assert [earlier.hash for earlier in earlier_of.values()] == [line[1]]
    assert one.percent == pytest.approx(100)
    # The commit of the line after the fork does not compare with the experiment.
    [after] = each(compare_commit(results, "box", line[2], None, Thresholds())[0])
    assert after.percent == pytest.approx(0)


def test_compare_offers_commits_off_the_line_last(place):
    store, _, line, experiment = place
    options = compare_page.commit_options(store.current(), "box")
    assert [option["value"] for option in options] == [*line[::-1], experiment]
    assert "(apart)" in options[-1]["label"]
    assert not any("(apart)" in option["label"] for option in options[:-1])


def parts(component):
    """All components and texts of a page, in order."""
    children = component if isinstance(component, list) else [component]
    for child in children:
        yield child
        if getattr(child, "children", None) is not None:
            yield from parts(child.children)
        elif isinstance(child, tuple):
            yield from parts(list(child))


def words(component):
    """The text that a reader sees."""
    return "".join(part for part in parts(component) if isinstance(part, str))


def test_the_machines_and_the_api_name_them(place):
    store, findings, line, experiment = place
    sentence = "1 of 4 measured commits is off the line of main: pages show them apart, and they open no alert."
    assert sentence in words(machines_page.body(store.current(), "light", 0))
    client = create_app(store, findings=findings).server.test_client()
    listed = client.get("/api/v1/commits/box").json
    assert [(entry["hash"], entry["apart"]) for entry in listed] == [
        *((commit, False) for commit in line),
        (experiment, True),
    ]
    assert listed[-1]["fork"] == line[1]


def test_the_page_of_a_commit_that_stands_by_date_says_so(tmp_path):
    repository = Repository(tmp_path / "repo", tmp_path / "results")
    commit = repository.commit("one", 0.01)
    results = open_store(repository.results, repo=tmp_path).current()
    text = words(commit_page.layout(results, CommitAddress(commit)))
    assert "by date, because git does not know its place" in text
