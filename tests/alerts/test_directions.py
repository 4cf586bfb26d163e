"""Which direction is better: from the unit, from an attribute, from a rule; and what is said where nobody states it."""

from __future__ import annotations

import pytest
from tracked_numbers import analysed, levels, write_numbers, write_table

from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.story import tell
from lockstep.alerts.text import amount, headline
from lockstep.suite.thresholds import FILE, Thresholds, read_thresholds

FALL = levels((100.0, 20), (70.0, 20), spread=0.5)
RISE = levels((100.0, 20), (130.0, 20), spread=0.5)


def thresholds(folder, text):
    (folder / FILE).write_text(text)
    return read_thresholds(folder / FILE)


def rule(better, match='suite = "s"'):
    return f'[[rule]]\nmatch = {{ {match} }}\nbetter = "{better}"\n'


def steps(root, rules=None):
    _, found = analysed(root, rules)
    return {change.series.variant: change for change in found.changes if not change.suppressed}


@pytest.mark.parametrize("unit", ["GB/s", "GFLOPS", "gflopss", "tokens/sec", "fps", "req/s (higher is better)"])
def test_a_rate_that_falls_is_worse_by_its_own_percentage(tmp_path, unit):
    write_numbers(tmp_path / "r", {"s.track_rate": FALL}, {"s.track_rate": {"unit": unit}})
    step = steps(tmp_path / "r")["track_rate"]
    assert (step.sense, step.better) == ("worse", "higher")
    assert amount(step) in ("−30.0 %", "−29.9 %")
    assert step.share == pytest.approx(0.3, abs=0.005)


def test_a_rate_that_rises_opens_no_alert(tmp_path):
    write_numbers(tmp_path / "r", {"s.track_rate": RISE}, {"s.track_rate": {"unit": "GFLOPS"}})
    _, found = analysed(tmp_path / "r")
    assert [alert.topic for alert in found.alerts if alert.members] == ["faster"]


def test_an_attribute_of_the_benchmark_goes_before_its_unit_and_a_rule_before_both(tmp_path):
    entries = {"s.track_a": {"unit": "GB/s", "better": "lower"}, "s.track_b": {"unit": "unit", "better": "higher"}}
    write_numbers(tmp_path / "r", dict.fromkeys(entries, RISE), entries)
    assert {name: step.sense for name, step in steps(tmp_path / "r").items()} == {
        "track_a": "worse",
        "track_b": "better",
    }
    stated = thresholds(tmp_path, rule("neither") + rule("higher", 'variant = "track_a"'))
    found = steps(tmp_path / "r", stated)
    assert {name: step.sense for name, step in found.items()} == {"track_a": "better", "track_b": "changed"}
    assert amount(found["track_a"]) == amount(found["track_b"])


def test_without_a_direction_a_change_is_recorded(tmp_path):
    write_numbers(tmp_path / "r", {"s.track_x": FALL, "s.track_y": RISE}, {"s.track_x": {}, "s.track_y": {}})
    _, found = analysed(tmp_path / "r")
    [alert] = [alert for alert in found.alerts if alert.members]
    assert alert.topic == "changed"
    assert {member.sense for member in alert.members} == {"changed"}
    assert "s on box changed by −29.9 % in" in headline(alert)
    assert any("−29.9 % (−30.2 … −29.6 %)  s.track_x" in line for line in tell(alert).lines())
    store = AlertStore(Database(tmp_path / "alerts.sqlite"))
    store.sync(found)
    states = {one.alert.topic: one.ending for one in store.alerts(None)}
    assert states["changed"] == "recorded"


def test_a_rule_that_comes_later_opens_and_closes_the_alert(tmp_path):
    write_numbers(tmp_path / "r", {"s.track_x": RISE}, {"s.track_x": {}})
    store = AlertStore(Database(tmp_path / "alerts.sqlite"))

    def told(rules):
        _, found = analysed(tmp_path / "r", rules)
        store.sync(found)
        [alert] = [one for one in store.alerts(None) if one.alert.members]
        return alert.alert.topic, alert.state, alert.ending

    assert told(Thresholds()) == ("changed", "resolved", "recorded")
    assert told(thresholds(tmp_path, rule("lower"))) == ("slower", "reopened", "")
    assert told(thresholds(tmp_path, rule("higher"))) == ("faster", "resolved", "recorded")


def test_an_accepted_share_is_that_of_the_number(tmp_path):
    commits = write_numbers(tmp_path / "r", {"s.track_rate": FALL}, {"s.track_rate": {"unit": "GB/s"}})
    for share, excused in (("31 %", True), ("29 %", False)):
        text = (
            f'[[accept]]\nmatch = {{ suite = "s" }}\nslower_by = "{share}"\nof = "{commits[20]}"\nbecause = "safer"\n'
        )
        _, found = analysed(tmp_path / "r", thresholds(tmp_path, text))
        [alert] = [alert for alert in found.alerts if alert.members]
        assert (alert.waiver is not None) == excused


def test_a_time_may_be_stated_too(tmp_path):
    """A time to failure is better if it is longer."""
    write_numbers(tmp_path / "r", {"s.track_life": FALL}, {"s.track_life": {"unit": "seconds"}})
    assert steps(tmp_path / "r")["track_life"].sense == "better"
    assert steps(tmp_path / "r", thresholds(tmp_path, rule("higher")))["track_life"].sense == "worse"


def test_tables_of_nested_folders_count(tmp_path):
    root = tmp_path / "r"
    entries = {"s.track_rate": {"unit": "GFLOPS"}}
    write_numbers(root / "shard", {"s.track_rate": FALL}, entries, folder="box")
    assert steps(root)["track_rate"].sense == "worse"
    write_table(root / "shard" / "benchmarks.json", {"s.track_rate": {"unit": "ms"}})
    assert steps(root)["track_rate"].sense == "better"
    # The table of the results folder itself goes before.
    write_table(root / "benchmarks.json", {"s.track_rate": {"unit": "fps"}})
    assert steps(root)["track_rate"].sense == "worse"
    (root / "shard" / "benchmarks.json").write_text("[")
    results, _ = analysed(root)
    assert [problem.path for problem in results.problems] == ["shard/benchmarks.json"]
