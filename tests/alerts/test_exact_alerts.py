"""Exact quantities from results on disk to alerts: any change is found at its commit; a budget opens an alert."""

import datetime

import history
import pytest
from exact import KEY, code, write_exact_history
from history import DAY_MS, START_MS, Here, commits_of, write_history
from verb import run_verb

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.analysis.latest_findings import MachineFindings
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.alert_row import from_json, to_json
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.story import tell
from lockstep.alerts.text import headline
from lockstep.history.store import Store
from lockstep.suite.thresholds import Pattern, Rule, Thresholds

LENGTH = 8
MACHINE = "sm_90-compiled"
NOW = datetime.datetime.fromtimestamp((START_MS + LENGTH * DAY_MS) / 1000, datetime.UTC)

#: With it, every change of both quantities opens an alert.
BUDGET = Thresholds(budget=(("registers", 0.0), ("spills", 0.0)))

#: Every second commit touches the packages and has results: one register more at the second point, then spills.
PLAN = {0: code(), 2: code(registers=129), 4: code(registers=129, spills=512), 6: code(registers=120, spills=512)}


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    root = tmp_path_factory.mktemp("exact") / "repo"
    commits = commits_of(root, LENGTH, touch=lambda n: n % 2 == 0)
    write_exact_history(root / "results", commits, PLAN.get)
    results = Store.open(root / "results", cache=root.parent / "cache").current()
    cache = AnalysisFile(root.parent / "found")
    ranges = Ranges(root, ("kernels",))
    found = analyse_results(results, BUDGET, ranges, NOW, cache)
    again = analyse_results(results, BUDGET, ranges, NOW, cache)
    assert again.alerts == found.alerts, "from its own files"
    return (
        results,
        commits,
        found,
        MachineFindings(cache, results, MACHINE, BUDGET),
    )


def test_every_change_is_found_at_its_commit_in_its_own_quantity(analysed):
    _, commits, found, _ = analysed
    changes = [
        (
            one.series.quantity,
            one.old,
            one.new,
            tuple(fact.after for fact in one.cause.evidence if fact.what == "commit"),
        )
        for one in found.changes
    ]
    assert sorted(changes) == [
        ("registers", 128, 129, (commits[2],)),
        ("registers", 129, 120, (commits[6],)),
        ("spills", 0, 512, (commits[4],)),
    ]
    assert {one.suppressed for one in found.changes} == {""}, "one register of 128 is less than one percent"
    assert {one.cause.kind for one in found.changes} == {"own commit"}


def test_without_a_budget_of_its_own_a_quantity_explains_and_opens_no_alert(analysed, tmp_path):
    results, commits, every, _ = analysed

    def alerts(thresholds):
        cache = AnalysisFile(tmp_path)
        found = analyse_results(results, thresholds, Ranges(tmp_path, ("kernels",)), NOW, cache)
        assert len(found.changes) == len(every.changes), "pages and changes go on to list it"
        return [(one.after, member.series.quantity) for one in found.alerts for member in one.members]

    assert alerts(Thresholds()) == [(commits[4], "spills")]
    assert alerts(Thresholds(budget=(("spills", 511.0),))) == [(commits[4], "spills")]
    assert alerts(Thresholds(budget=(("spills", 512.0),))) == []


def test_a_rise_beside_a_faster_time_of_the_same_commits_opens_no_alert(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "VARIANT", KEY.variant)
    monkeypatch.setattr(history, "CASES", (KEY.case,))
    root = tmp_path / "repo"
    commits = commits_of(root, 12)
    write_exact_history(root / "results", commits, lambda n: code(launches=1 if n < 6 else 2))
    thresholds = Thresholds(budget=(("launches", 0.0),))

    def alerts(slower):
        write_history(root / "results", "h200", commits, slower)
        results = Store.open(root / "results", cache=root.parent / "cache").current()
        found = analyse_results(results, thresholds, Ranges(root, ("kernels",)), NOW, AnalysisFile(tmp_path / "found"))
        return {one.machine for one in found.alerts if one.topic == "slower"}

    assert alerts(lambda n: Here()) == {MACHINE}
    assert alerts(lambda n: Here(slower=0.9 if n >= 6 else 1.0)) == set()
    assert alerts(lambda n: Here(slower=0.9 if n >= 2 else 1.0)) == {MACHINE}, "the gain is of another commit"


def test_a_fall_opens_no_alert_whatever_the_budget(analysed):
    _, commits, every, _ = analysed
    alerted = [(one.after, one.topic) for one in every.alerts]
    assert alerted == [(commits[2], "slower"), (commits[4], "slower")], "the fall to 120 registers is none of them"


def test_a_rule_makes_a_quantity_ring_where_it_is_asked_for(analysed, tmp_path):
    results, commits, *_ = analysed

    def alerts(suite):
        rule = Rule(Pattern(suite, quantity="registers"), budget=0.0)
        thresholds = Thresholds(rules=(rule,), budget=())
        found = analyse_results(results, thresholds, Ranges(tmp_path), NOW, AnalysisFile(tmp_path))
        return [(one.after, member.series.quantity) for one in found.alerts for member in one.members]

    assert alerts("linear") == [(commits[2], "registers")]
    assert alerts("kda") == []


def test_a_stored_alert_ends_with_the_entry_of_the_file_that_rules_it_out(analysed, tmp_path):
    results, _, every, _ = analysed
    database = Database(f"{tmp_path / 'alerts.sqlite'}")
    store = AlertStore(database)
    store.sync(every)

    def note(budget):
        thresholds = Thresholds(budget=budget)
        store.sync(analyse_results(results, thresholds, Ranges(tmp_path), NOW, AnalysisFile(tmp_path)))
        [ended] = [one for one in store.alerts() if one.ending == "withdrawn"]
        return store.log(ended.id)[-1].note, ended

    within, ended = note((("spills", 512.0),))
    assert within == "the budget in thresholds.toml lets spills rise by 512"
    store.sync(every)
    assert store.alert(ended.id).state == "reopened"
    without, _ = note(())
    assert without == "spills explain a time; without a budget in thresholds.toml they open no alert"
    store.sync(every)
    assert store.alert(ended.id).state == "reopened"
    database.close()


def test_a_message_says_worse_and_gives_the_numbers(analysed):
    _, commits, found, _ = analysed
    more, spills = sorted(found.alerts, key=lambda one: commits.index(one.after))
    where = "linear.stream M=8,K=4096,N=2048"
    assert headline(more) == f"linear on {MACHINE} worse in {more.range}: {where} registers 128 → 129 (+0.8 %)"
    assert headline(spills).endswith(f"worse in {spills.range}: {where} spills 0 → 512")
    assert f"  0 → 512  {where} spills" in list(tell(spills).lines())
    assert "nothing but the commits in the range differs" in more.cause.sentence
    assert spills.suspects == (commits[4],)
    assert from_json(to_json(spills)) == spills


def test_pages_find_the_changes(analysed):
    _, _, _, picture = analysed
    assert sorted((one.series.quantity, one.old, one.new) for one in picture.changes) == [
        ("registers", 128, 129),
        ("registers", 129, 120),
        ("spills", 0, 512),
    ]
    assert picture.noise == {}


def test_changes_says_an_exact_event_once_and_names_only_machines_that_cannot_be_judged(tmp_path, monkeypatch, capfd):
    """Four commits are enough here: an exact quantity needs one on either side. Each quantity had a row of its own."""
    commits = commits_of(tmp_path / "repo", 4)
    plan = {0: code(), 1: code(), 2: code(registers=129, spills=512, launches=2), 3: code(registers=130)}
    write_exact_history(tmp_path / "repo/results", commits, plan.get)
    write_exact_history(tmp_path / "one", commits, {0: code()}.get)
    monkeypatch.chdir(tmp_path / "repo")
    monkeypatch.setenv("COLUMNS", "250")
    assert run_verb("changes", "--exact", "--cache", tmp_path / "cache") == 1
    printed = capfd.readouterr().out
    [row] = [line for line in printed.splitlines() if commits[2][:8] in line]
    assert "linear.stream M=8,K=4096,N=2048 spills and 2 more: launches, registers" in row
    assert "too few measured commits" not in printed
    assert "nothing to compare" not in printed
    assert run_verb("changes", "--exact", "--results", tmp_path / "one", "--cache", tmp_path / "other") == 0
    assert "one commit has exact quantities, and nothing to compare them with: sm_90-compiled" in capfd.readouterr().out
