"""Rules [[same]] of thresholds.toml join machines; pages, the detector and comparisons see one."""

import pytest
from trees import DATE, edit, open_store, write_plain

from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.states_and_actions import OPEN
from lockstep.alerts.database.store import AlertStore
from lockstep.suite.thresholds import Thresholds, ThresholdsError

DAY = 86_400_000


def commit(number):
    return f"{number:08x}" * 5


def measure(root, machine, days, name="a.A.time_x", value=1.0, **facts):
    """One number a day, at the commit of that day."""
    for day in days:
        number = value(day) if callable(value) else value
        write_plain(root, {name: number}, machine, commit(day), DATE + day * DAY, **facts)


def store(root, rules=""):
    file = root.parent / "thresholds.toml"
    file.write_text(rules)
    return open_store(root, thresholds=file)


def trends(results):
    """Machine, benchmark and parameters of each series, with the days of its points and the number of its versions."""
    days = {machine: [int(one.hash[:8], 16) for one in results.commits(machine)] for machine in results.machines}
    return {
        (trend.series.machine, trend.series.benchmark, trend.series.text): (
            [days[trend.series.machine][at] for at in trend.commit.tolist()],
            len(set(trend.version.tolist())),
        )
        for trend in results.trends()
    }


RUNNERS = '[[same]]\nmachine = "runner"\nwas = ["fv-*"]\n'


def test_runners_with_new_names_are_one_machine(tmp_path):
    for day in range(8):
        # Each measures the last three commits: they are repetitions of one another.
        measure(tmp_path / "r", f"fv-{day}", range(day, day + 3), value=1.0 + day)
    results = store(tmp_path / "r", RUNNERS).current()
    assert trends(results) == {("runner", "a.A.time_x", ""): (list(range(10)), 1)}
    [trend] = results.trends()
    assert trend.value.tolist()[:4] == [1.0, 1.5, 2.0, 3.0]


def test_a_machine_that_was_replaced_goes_on(tmp_path):
    measure(tmp_path / "r", "old", range(10), cpu="slow")
    measure(tmp_path / "r", "new", range(10, 20), cpu="fast")
    rules = '[[same]]\nmachine = "new"\nwas = ["old"]\n'
    results = store(tmp_path / "r", rules).current()
    assert trends(results) == {("new", "a.A.time_x", ""): (list(range(20)), 1)}
    assert results.machines["new"].strings["cpu"] == "fast"


def test_machines_of_different_hardware_at_one_commit_stay_apart(tmp_path):
    for day in range(8):
        measure(tmp_path / "r", f"fv-{day}", range(day, day + 3), cpu="AMD" if day % 2 else "Intel")
    results = store(tmp_path / "r", RUNNERS).current()
    assert sorted(results.machines) == ["runner", "runner (AMD)"]


def test_a_rule_that_names_nothing_is_told(tmp_path):
    measure(tmp_path / "r", "box", range(3))
    [said] = store(tmp_path / "r", '[[same]]\nmachine = "m"\nwas = ["typo*"]\n').current().refused
    assert said.endswith("[[same]] no. 1: was names no machine of these results: typo*")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('was = ["x"]', "machine is missing; write the name of today"),
        ('machine = "a"', "was is missing; write the earlier names"),
        ('machine = "a"\nwas = []', "was is []; write the earlier names"),
        ('machine = "a"\nwas = ["a"]', "was contains 'a', the name of today"),
        ('benchmark = "a"\nwas = ["b"]', "benchmark is not a key of this table; its keys are machine, was"),
        ('machine = 3\nwas = ["b"]', "machine is 3; write the name of today"),
    ],
)
def test_a_wrong_rule_is_named_with_file_and_key(tmp_path, rule, said):
    measure(tmp_path / "r", "box", range(3))
    with pytest.raises(ThresholdsError, match=r"thresholds.toml, \[\[same\]\] no. 1: ") as error:
        store(tmp_path / "r", f"[[same]]\n{rule}\n").current()
    assert said in str(error.value)


def test_rules_that_change_while_a_server_runs_count_at_once(tmp_path):
    measure(tmp_path / "r", "fv-1", range(3))
    opened = store(tmp_path / "r")
    opened.current()
    (tmp_path / "thresholds.toml").write_text(RUNNERS)
    assert list(opened.current().machines) == ["runner"]
    (tmp_path / "thresholds.toml").write_text("[[same")  # half written
    assert list(opened.current().machines) == ["runner"]


def test_open_alerts_of_the_earlier_name_are_withdrawn(tmp_path):
    """Those of today are found again under the new name."""
    for number in range(3):
        measure(tmp_path / "r", f"fv-{number}", range(12), value=lambda day: 1.3 if day >= 6 else 1.0)
    database = Database(tmp_path / "alerts.sqlite")
    alerts = AlertStore(database)
    alerts.sync(analyse_store(store(tmp_path / "r"), Thresholds(), tmp_path)[1])
    assert {alert.alert.machine for alert in alerts.alerts(OPEN)} == {"fv-0", "fv-1", "fv-2"}
    alerts.sync(analyse_store(store(tmp_path / "r", RUNNERS), Thresholds(), tmp_path)[1])
    assert {alert.alert.machine for alert in alerts.alerts(OPEN)} == {"runner"}
    assert alerts.log(1)[-1].note == "its machine is runner since [[same]] in thresholds.toml says so"
    database.close()


def test_parts_of_a_suite_in_nested_folders_are_joined_by_a_rule(tmp_path):
    for shard, name in (("one", "a.A.time_x"), ("two", "b.B.time_y")):
        measure(tmp_path / "r" / shard, "box", range(5), name)
    assert sorted(open_store(tmp_path / "r").current().machines) == ["one/box", "two/box"]
    results = store(tmp_path / "r", '[[same]]\nmachine = "box"\nwas = ["*/box"]\n').current()
    assert list(results.machines) == ["box"]
    assert {name: days for (_, name, _), (days, _) in trends(results).items()} == {
        "a.A.time_x": list(range(5)),
        "b.B.time_y": list(range(5)),
    }
    assert results.notes == ()
    assert len(results.runs_of("box")) == 5


def test_parts_of_a_suite_in_one_folder_are_no_repetitions(tmp_path):
    measure(tmp_path / "r", "box", range(3))
    path = write_plain(tmp_path / "r", {"b.B.time_y": 2.0}, "box", commit(1), DATE + DAY, "part2")
    edit(path, lambda data: data.update(env_name="virtualenv-py3.11"))
    results = open_store(tmp_path / "r").current()
    assert results.notes == ()
    assert len(trends(results)) == 2
