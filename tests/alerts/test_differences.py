"""Numbers that are zero or negative: their changes are differences in the unit, in every text, page and message."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from compared import each
from served import table_of
from served import words as escaped
from tracked_numbers import analysed, levels, write_numbers

from dashboard.address import SeriesAddress
from dashboard.pages import alerts as alerts_page
from dashboard.pages import series as series_page
from dashboard.pages import series_data
from dashboard.pages.alert import body
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.alert_row import Tracked
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.story import tell
from lockstep.alerts.text import amount, headline, interval
from lockstep.compare.series_status import statuses
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

#: Numbers of each series, and how its change reads. The unit says the better direction of the first four.
SERIES = {
    "s.mem_leak": (levels((0, 25), (1_000_000, 25)), "bytes", "0 → 1,000,000 (+1,000,000 bytes)", "worse"),
    "s.track_errors": (levels((0, 25), (5, 25)), "errors", "0 → 5 (+5 errors)", "worse"),
    "s.track_lost": (levels((5, 25), (0, 25)), "errors", "5 → 0 (−5 errors)", "better"),
    "s.track_gain": (levels((-100, 25), (-120, 25)), "dB (higher is better)", "−100 → −120 (−20 dB)", "worse"),
    "s.track_drift": (levels((0, 25), (10, 25), spread=0.2), "unit", "", "changed"),
}


def words(component):
    return re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), escaped(component))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("differences") / "r"
    numbers = {name: row for name, (row, *_) in SERIES.items()}
    entries = {
        name: {"unit": unit, "type": "memory" if "mem_" in name else "track"} for name, (_, unit, *_) in SERIES.items()
    }
    write_numbers(root, numbers, entries)
    return root


@pytest.fixture(scope="module")
def found(tree):
    return analysed(tree)


@pytest.mark.parametrize("name", SERIES)
def test_a_change_has_both_numbers_and_the_difference(found, name):
    *_, text, sense = SERIES[name]
    [step] = [change for change in found[1].changes if f"s.{change.series.variant}" == name]
    assert (step.sense, step.measure) == (sense, "difference")
    assert step.new - step.old == pytest.approx(step.of_number(step.size))
    assert "%" not in amount(step) + interval(step)
    if text:
        assert amount(step) == text
    else:
        assert step.size == pytest.approx(10, abs=0.3)


def test_a_size_of_zero_bytes_is_a_number_and_a_negative_size_is_not(tmp_path):
    write_numbers(tmp_path / "r", {"s.mem_x": [0, -1], "s.time_x": [0, 1]}, {"s.mem_x": {}, "s.time_x": {}})
    results, _ = analysed(tmp_path / "r")
    points = [point for commit in results.commits() for point in results.at(commit.hash)]
    told = {(point.series.benchmark, point.commit): (point.state, point.value, point.reason) for point in points}
    assert told["s.mem_x", 0] == ("bare", 0.0, "")
    assert told["s.mem_x", 1] == ("failed", None, "-1 is not a finite and positive or zero number")
    assert told["s.time_x", 0] == ("failed", None, "0 is not a positive number")


def test_alerts_messages_and_pages_show_no_ratio(tree, found, tmp_path):
    results, now = found
    [alert] = [alert for alert in now.alerts if alert.members]
    # The largest relative difference among the worse series comes first: from nothing to something.
    assert "s on box worse in" in headline(alert)
    assert "mem_leak 0 → 1,000,000 (+1,000,000 bytes) and 2 more; 1 better and 1 changed in the same range" in headline(
        alert
    )
    store = AlertStore(Database(tmp_path / "alerts.sqlite"))
    store.sync(now)
    [stored] = [one for one in store.alerts(None) if one.alert.members]
    assert (stored.state, stored.alert) == ("new", alert)
    text = "\n".join(tell(alert).lines())
    assert "0 → 5 (+5 errors), " in text
    assert "%" not in text.replace("99.9 % sure", "")
    findings = Findings(Store.open(tree, cache=tree.parent / "cache").cache, tree)
    machine = findings.of_machine(results, "box")
    page = words(body(Tracked(1, "", alert, "new", "", None, 0, 0), results, "light"))
    assert "0 → 1,000,000 (+1,000,000 bytes)" in page
    assert "5 → 0 (−5 errors)" in words(
        alerts_page._row(replace(stored, alert=replace(alert, members=alert.members[-1:])), 0)
    )
    found = statuses(results, "box", results.commits()[0], machine, Thresholds())
    by_name = {status.row.suite: status for status in each(found)}
    assert {name: status.verdict for name, status in by_name.items()} == {
        "s.mem_leak": "slower",
        "s.track_errors": "slower",
        "s.track_lost": "faster",
        "s.track_gain": "slower",
        "s.track_drift": "changed",
    }
    assert {status.worse for status in by_name.values()} == {None}
    [cells] = (row for row in table_of(results, "box", found) if row["family"] == "s.track_errors")
    assert "change" not in cells
    assert (cells["sign"], cells["difference"]) == ("▼", "0 → 5 (+5 errors)")
    shown = series_data.view(results, SeriesAddress("box", "s.track_drift"), machine)
    facts = words(series_page.facts(shown, machine))
    assert "1 % after" not in facts
    assert re.search(r'"children": "0\.[12]\d+"', facts)
    changes = words(series_page.changes(shown))
    assert "◆ " in changes
    assert "%" not in changes


def test_min_effect_is_a_share_of_the_larger_level(tmp_path):
    write_numbers(tmp_path / "r", {"s.track_x": levels((-100, 25), (-103, 25))}, {"s.track_x": {"unit": "errors"}})
    _, found = analysed(tmp_path / "r")
    [change] = found.changes
    assert change.share == pytest.approx(3 / 103)
    assert change.suppressed == ""
