"""Rules [[same]] of thresholds.toml join what was renamed; pages, the detector and comparisons see one series."""

import pytest
from trees import DATE, edit, open_store, points_in, write_plain

from dashboard.address import SeriesAddress
from dashboard.pages.series import layout
from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.history.model import SeriesKey
from lockstep.suite.thresholds import Thresholds, ThresholdsError

DAY = 86_400_000


def commit(number):
    return f"{number:08x}" * 5


def measure(root, machine, days, name="a.A.time_x", value=1.0, version="1", **facts):
    """One number a day, at the commit of that day."""
    for day in days:
        number = value(day) if callable(value) else value
        path = write_plain(root, {name: number}, machine, commit(day), DATE + day * DAY, **facts)
        edit(path, lambda data: data["results"][name].__setitem__(2, version))


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


RENAMED = '[[same]]\nbenchmark = "b.B.time_y"\nwas = ["a.A.time_x"]\n'


def test_a_renamed_benchmark_is_one_series_of_one_version(tmp_path):
    measure(tmp_path / "r", "box", range(10), version="old")
    measure(tmp_path / "r", "box", range(10, 20), "b.B.time_y", version="new")
    assert len(trends(store(tmp_path / "r").current())) == 2
    results = store(tmp_path / "r", RENAMED).current()
    assert trends(results) == {("box", "b.B.time_y", ""): (list(range(20)), 1)}
    assert list(results.benchmarks) == ["b.B.time_y"]
    assert results.benchmarks["b.B.time_y"].unit == "seconds"
    assert results.refused == ()
    [newest] = results.latest("box")
    assert newest.commit == 19
    assert [point.value for point in results.at(commit(3))] == [1.0]
    assert len(points_in(results, *results.series())) == 20


def test_an_older_version_of_the_old_name_stays_apart(tmp_path):
    measure(tmp_path / "r", "box", range(5), version="older")
    measure(tmp_path / "r", "box", range(5, 10), version="old")
    measure(tmp_path / "r", "box", range(10, 20), "b.B.time_y", version="new")
    [trend] = store(tmp_path / "r", RENAMED).current().trends()
    assert trend.version.tolist()[:5] == 5 * [trend.version[0]]
    assert trend.version.tolist()[5:] == 15 * [trend.version[5]]
    assert trend.version[0] != trend.version[5]


def test_a_slowdown_that_came_with_the_rename_is_found(tmp_path):
    noise = lambda day: 1 + 0.001 * (day * 7919 % 13 - 6)  # noqa: E731
    measure(tmp_path / "r", "box", range(20), value=noise, version="old")
    measure(tmp_path / "r", "box", range(20, 40), "b.B.time_y", value=lambda day: 1.6 * noise(day), version="new")
    _, apart = analyse_store(store(tmp_path / "r"), Thresholds(), tmp_path)
    assert {alert.topic for alert in apart.alerts} - {"silent"} == {"vanished"}
    assert apart.changes == ()
    opened = store(tmp_path / "r", RENAMED)
    _, joined = analyse_store(opened, Thresholds(), tmp_path)
    [change] = joined.changes
    assert (change.series.label, change.after) == ("b.B.time_y", commit(20))
    assert {alert.topic for alert in joined.alerts} - {"silent"} == {"slower"}
    # One more commit continues the joined series.
    measure(tmp_path / "r", "box", [40], "b.B.time_y", value=lambda day: 1.6 * noise(day), version="new")
    _, more = analyse_store(opened, Thresholds(), tmp_path)
    assert [one.after for one in more.changes] == [commit(20)]


def test_a_parameter_that_was_renamed_is_one_series(tmp_path):
    for day in range(20):
        texts = {"'fast'": 1.0, "0.50" if day < 10 else "0.5": 2.0}
        write_plain(tmp_path / "r", {"a.A.time_x": texts}, "box", commit(day), DATE + day * DAY)
    rules = '[[same]]\nparameter = "param1=0.5"\nwas = "param1=0.50"\n'
    results = store(tmp_path / "r", rules).current()
    [old, new] = (SeriesKey("box", "a.A.time_x", case=f"param1={text}") for text in ("0.50", "0.5"))
    assert (results.current(old), results.current(new)) == (new, new)
    assert trends(results) == {
        ("box", "a.A.time_x", "param1=0.5"): (list(range(20)), 1),
        ("box", "a.A.time_x", "param1=fast"): (list(range(20)), 1),
    }
    rules = '[[same]]\nparameter = "param1=quick"\nwas = ["param1=fast", "param1=no"]\n'
    assert ("box", "a.A.time_x", "param1=quick") in trends(store(tmp_path / "r", rules).current())


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
    [sentence] = results.refused
    assert sentence == (
        f"{tmp_path}/thresholds.toml, [[same]] no. 1: runner, runner (AMD) stay apart, because their hardware or "
        "environment differs and they have points at the same commit"
    )


def test_two_series_with_points_at_one_commit_are_refused(tmp_path):
    measure(tmp_path / "r", "box", range(10))
    measure(tmp_path / "r", "other", range(9, 20), "b.B.time_y")
    path = write_plain(tmp_path / "r", {"a.A.time_x": 1.0, "b.B.time_y": 2.0}, "box", commit(10), DATE + 10 * DAY)
    results = store(tmp_path / "r", RENAMED).current()
    assert results.refused == (
        f"{tmp_path}/thresholds.toml, [[same]] no. 1 is not applied: a.A.time_x and b.B.time_y both have points at "
        f"commit {commit(10)[:8]} on box",
    )
    assert ("box", "a.A.time_x", "") in trends(results)
    path.unlink()
    assert ("box", "b.B.time_y", "") in trends(store(tmp_path / "r", RENAMED).current())


def test_a_rule_that_names_nothing_is_told(tmp_path):
    measure(tmp_path / "r", "box", range(3))
    rules = '[[same]]\nbenchmark = "b"\nwas = ["typo"]\n[[same]]\nmachine = "m"\nwas = ["typo*"]\n'
    machine, benchmark = store(tmp_path / "r", rules).current().refused
    assert benchmark.endswith("[[same]] no. 1: was names no benchmark of these results: typo")
    assert machine.endswith("[[same]] no. 2: was names no machine of these results: typo*")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('was = ["x"]', "[[same]] needs one of benchmark, parameter and machine, and has 0"),
        ('benchmark = "a"\nmachine = "b"\nwas = "c"', "needs one of benchmark, parameter and machine, and has 2"),
        ('benchmark = "a"', "was is missing; write the earlier names"),
        ('benchmark = "a"\nwas = []', "was is []; write the earlier names"),
        ('benchmark = "a"\nwas = ["a"]', "was contains 'a', the name of today"),
        ('parameter = "0.5"\nwas = ["n=0.50"]', "parameter is '0.5'; write name and value of today"),
        ('benchmark = "a"\nwere = ["b"]', "were is not a key of this table"),
        ('benchmark = 3\nwas = ["b"]', "benchmark is 3; write the name of today"),
    ],
)
def test_a_wrong_rule_is_named_with_file_and_key(tmp_path, rule, said):
    measure(tmp_path / "r", "box", range(3))
    with pytest.raises(ThresholdsError, match=r"thresholds.toml, \[\[same\]\] no. 1: ") as error:
        store(tmp_path / "r", f"[[same]]\n{rule}\n").current()
    assert said in str(error.value)


def test_rules_that_change_while_a_server_runs_count_at_once(tmp_path):
    measure(tmp_path / "r", "box", range(3))
    opened = store(tmp_path / "r")
    before = opened.current()
    (tmp_path / "thresholds.toml").write_text(RENAMED)
    after = opened.current()
    assert [one.benchmark for one in after.series()] == ["b.B.time_y"]
    assert before.state("box") != after.state("box")
    (tmp_path / "thresholds.toml").write_text("[[same")  # half written
    assert [one.benchmark for one in opened.current().series()] == ["b.B.time_y"]


def test_shared_addresses_lead_to_the_joined_series(tmp_path):
    measure(tmp_path / "r", "old", range(3))
    rules = f'{RENAMED}[[same]]\nmachine = "new"\nwas = ["old"]\n'
    page = str(layout(store(tmp_path / "r", rules).current(), SeriesAddress("old", "a.A.time_x")))
    assert "'machine': 'new'" in page
    assert "'suite': 'b.B.time_y'" in page


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
