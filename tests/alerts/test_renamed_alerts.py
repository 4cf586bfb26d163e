"""An alert that people answered stays answered under the new name of its benchmark, parameter or machine."""

import datetime

import pytest
from trees import DATE, open_store, write_plain

from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.states_and_actions import Act
from lockstep.alerts.database.store import AlertStore
from lockstep.suite.thresholds import Thresholds

DAY = 86_400_000
SLOW = 12
TODAY = datetime.date(2026, 11, 26)

#: The kind of rule, machine, benchmark and parameter text before and after the rename, and the rule.
RENAMES = {
    "benchmark": (("box", "a.A.time_x", "1"), ("box", "b.B.time_y", "1"), 'benchmark = "b.B.time_y"', "a.A.time_x"),
    "parameter": (("box", "a.A.time_x", "1"), ("box", "a.A.time_x", "one"), 'parameter = "param1=one"', "param1=1"),
    "machine": (("fv-1", "a.A.time_x", "1"), ("ci", "a.A.time_x", "1"), 'machine = "ci"', "fv-*"),
}


@pytest.fixture
def alerts(tmp_path):
    database = Database(tmp_path / "alerts.sqlite")
    yield AlertStore(database)
    database.close()


def measure(root, named, days):
    machine, benchmark, text = named
    for day in days:
        value = (1.3 if day >= SLOW else 1.0) * (1 + 0.001 * (day * 7919 % 13 - 6))
        write_plain(root, {benchmark: {text: value, "other": 1.0}}, machine, f"{day:08x}" * 5, DATE + day * DAY)


def sync(root, alerts, rules=""):
    file = root.parent / "thresholds.toml"
    file.write_text(rules)
    _, found = analyse_store(open_store(root, thresholds=file), Thresholds(), root)
    alerts.sync(found, TODAY)
    return [alert for alert in alerts.alerts() if alert.alert.topic == "slower"]


@pytest.mark.parametrize("kind", RENAMES)
@pytest.mark.parametrize(
    "act", [Act("ack", "ada", "looking"), Act("mute", "ada", "later", TODAY + datetime.timedelta(days=9))]
)
def test_an_answered_alert_is_found_under_the_new_name(tmp_path, alerts, kind, act):
    before, after, name, was = RENAMES[kind]
    measure(tmp_path / "r", before, range(25))
    [told] = sync(tmp_path / "r", alerts)
    answered = alerts.act(told.id, act, today=TODAY)
    measure(tmp_path / "r", after, range(25, 31))
    rules = f'[[same]]\n{name}\nwas = ["{was}"]\n'
    for _ in range(2):
        [still] = sync(tmp_path / "r", alerts, rules)
        assert (still.id, still.state, still.muted_until) == (told.id, answered.state, answered.muted_until)
        [member] = still.alert.members
        machine, benchmark, text = after
        assert (still.alert.machine, member.series.machine) == (machine, machine)
        assert member.series.label == f"{benchmark} param1={text}"
    notes = [event.note for event in alerts.log(told.id)]
    assert notes.count("renamed by [[same]] in thresholds.toml") == 1


def test_what_two_joined_machines_told_stays_one_alert_each(tmp_path, alerts):
    for machine in ("fv-1", "fv-2"):
        measure(tmp_path / "r", (machine, "a.A.time_x", "1"), range(25))
    first, second = sync(tmp_path / "r", alerts)
    alerts.act(first.id, Act("ack", "ada", "looking"))  # both alerts show the same step
    found = sync(tmp_path / "r", alerts, '[[same]]\nmachine = "ci"\nwas = ["fv-*"]\n')
    assert {one.id for one in found} == {first.id, second.id}
    assert [one.alert.machine for one in found] == ["ci", "ci"]
    assert sorted(one.state for one in found) == ["acknowledged", "resolved"]
