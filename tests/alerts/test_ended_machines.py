"""Runners with a new name each time, and environments that were replaced, raise no alert."""

import datetime

import pytest
from trees import DATE, open_store, write_plain

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.suite.thresholds import Thresholds

DAY = 86_400_000


def commit(number):
    return f"{number:08x}" * 5


def measure(root, machine, days, **facts):
    """One number a day."""
    for day in days:
        write_plain(root, {"s.time_f": 1.0}, machine, commit(day), DATE + day * DAY, **facts)


def found(root, days=100):
    """What an analysis finds ``days`` days after the first commit."""
    store = open_store(root)
    now = datetime.datetime.fromtimestamp(DATE / 1000 + 86_400 * days, datetime.UTC)
    return analyse_results(store.current(), Thresholds(), Ranges(root), now, AnalysisFile(store.cache))


def silent(root, days=100):
    return [alert.machine for alert in found(root, days).alerts if alert.topic == "silent"]


@pytest.mark.parametrize("commits", [1, 5])
def test_runners_with_a_new_name_each_time_are_not_silent(tmp_path, commits):
    for day in range(12):
        measure(tmp_path / "r", f"fv-az{1000 + 7 * day}-{day}", range(day, day + commits))
    assert silent(tmp_path / "r") == []


def test_machines_that_reported_for_a_week_are_silent_each(tmp_path):
    for number in range(3):
        measure(tmp_path / "r", f"m{number}", [number, number + 7])
    assert silent(tmp_path / "r") == ["m0", "m1", "m2"]


def test_an_environment_that_was_replaced_is_not_silent(tmp_path):
    measure(tmp_path / "r", "box", range(20), environment="py3.10")
    measure(tmp_path / "r", "box", range(10, 40), environment="py3.11")
    measure(tmp_path / "r", "other", range(40))
    assert silent(tmp_path / "r", days=40) == []


@pytest.mark.parametrize("first", [37, 10])
def test_a_machine_whose_environments_all_stop_is_silent(tmp_path, first):
    measure(tmp_path / "r", "box", range(38), environment="py3.10")
    measure(tmp_path / "r", "box", range(first, 40), environment="py3.11")
    assert silent(tmp_path / "r") == ["box (py3.11)"]


def test_an_operating_system_that_was_replaced_is_not_silent(tmp_path):
    for number, system in enumerate(("Linux 5.4", "Linux 6.1", "Linux 6.17")):
        measure(tmp_path / "r", "box", range(20 * number, 20 * number + 10), os=system)
    assert silent(tmp_path / "r", days=50) == []


def test_machines_that_miss_the_same_are_one_alert_of_one_that_goes_on(tmp_path):
    for machine, days in (("abandoned", range(20)), ("box", range(40))):
        for day in days:
            times = {"s.time_f": 1.0} | ({"s.time_g": 1.0} if day < 10 else {})
            write_plain(tmp_path / "r", times, machine, commit(day), DATE + day * DAY)
    [gone] = [alert for alert in found(tmp_path / "r", days=40).alerts if alert.topic == "vanished"]
    assert (gone.machine, gone.also_on, gone.text) == ("box", ("abandoned",), "there is no s.time_g")


def test_a_machine_is_silent_after_a_week_and_dead_where_another_went_on(tmp_path):
    for machine, last in (("h200", 20), ("b200", 13), ("a100", 14)):
        measure(tmp_path / "r", machine, range(last + 1))
    assert found(tmp_path / "r", days=20).dead == {"b200"}
    assert silent(tmp_path / "r", days=20) == ["b200"]
    assert sorted(silent(tmp_path / "r", days=21)) == ["a100", "b200"]
    assert sorted(silent(tmp_path / "r", days=400)) == ["a100", "b200", "h200"], (
        "results that are looked at a year later"
    )


def test_a_silence_of_two_months_opens_nothing_where_it_is_first_seen(tmp_path):
    for machine, last in (("h200", 60), ("b200", 20), ("v100", 10)):
        measure(tmp_path / "r", machine, [0, last])
    alerts = AlertStore(Database(tmp_path / "alerts.sqlite"))
    for days in (79, 90):  # what was opened in time stays open until somebody resolves it
        alerts.sync(found(tmp_path / "r", days))
        assert {one.alert.machine: one.state for one in alerts.alerts()} == {
            "b200": "new",
            "h200": "new",
            "v100": "resolved",
        }


def test_no_machine_is_dead_where_all_stopped_in_one_week(tmp_path):
    for machine, last in (("h200", 20), ("b200", 15)):
        measure(tmp_path / "r", machine, range(last + 1))
    assert found(tmp_path / "r", days=400).dead == frozenset()
