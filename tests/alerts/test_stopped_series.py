"""A series that is no longer measured is reported, one that was not selected is not."""

from dataclasses import replace

import pytest
from alerting import series

from lockstep.alerts.analysis.stopped_series import Reports, freshness, is_old, silence
from lockstep.alerts.text import culprits, headline
from lockstep.history.model import Commit
from lockstep.record.series_name import SeriesName

DAY = 86_400_000
START = 1_790_000_000_000
COMMITS = [Commit(f"{n:02x}" * 20, START + n * DAY) for n in range(60)]


def reported(commits, named, state="number", numbers=None):
    """The reports of a series at these commits, of which the first ``numbers`` have a number."""
    commits = list(commits)
    numbers = len(commits) if numbers is None else numbers
    return Reports(named, commits[0], commits[-1], commits[numbers - 1], numbers, state == "failed"), commits


def report(commits, state="number", numbers=None, **name):
    return reported(commits, series(**name), state, numbers)


def found_in(*made, commits=COMMITS):
    """The alerts of a machine that measures a family whenever it measures a series of it."""
    measured = {}
    for one, at in made:
        measured.setdefault(one.series.family, set()).update(at)
    return list(freshness("h200", commits, [one for one, _ in made], measured))


def alerts_of(*made):
    return [(one.topic, one.family, one.after, one.text) for one in found_in(*made)]


STEADY = report(range(60), variant="torch")


def test_series_that_report_give_no_alert():
    assert alerts_of(STEADY, report(range(60))) == []


def test_a_case_that_is_missing_is_reported_after_three_commits():
    assert alerts_of(STEADY, report(range(60)), report(range(57), case="M=1")) == [
        ("vanished", "linear", COMMITS[57].hash, "there is no linear.triton M=1")
    ]
    assert alerts_of(STEADY, report(range(60)), report(range(58), case="M=1")) == []


def test_a_case_that_was_measured_twice_is_not_missed():
    assert alerts_of(STEADY, report(range(60)), report(range(10, 13), case="M=1")) == []
    assert len(alerts_of(STEADY, report(range(60)), report(range(10, 14), case="M=1"))) == 1


def test_a_failing_case_is_reported_at_once():
    failing = report(range(60), "failed", 59)
    [(topic, _, after, text)] = alerts_of(STEADY, failing, report(range(60), case="M=1"))
    assert (topic, after) == ("stopped", COMMITS[59].hash)
    assert text == "1 series fails: linear.triton M=8,K=64 cold"


def test_what_one_commit_breaks_and_silences_is_one_alert():
    failing = [report(range(60), "failed", 50, case="M=2", family=family) for family in ("linear", "kda")]
    [(topic, family, after, text)] = alerts_of(STEADY, report(range(60)), *failing, report(range(50), case="M=1"))
    assert (topic, family, after) == ("stopped", "", COMMITS[50].hash)
    assert text == ("2 series fail: kda.triton M=2 cold, linear.triton M=2 cold; there is no linear.triton M=1")


def test_a_case_that_is_skipped_is_missing():
    assert alerts_of(STEADY, report(range(60)), report(range(60), "na", 50, case="M=1")) == [
        ("vanished", "linear", COMMITS[50].hash, "there is no linear.triton M=1")
    ]


def test_a_failing_case_that_is_removed_is_missing():
    [(topic, _, after, _)] = alerts_of(STEADY, report(range(60)), report(range(55), "failed", 50, case="M=1"))
    assert (topic, after) == ("vanished", COMMITS[50].hash)


def test_a_cost_that_is_not_measured_any_more_is_missed():
    [(_, _, _, text)] = alerts_of(STEADY, report(range(60)), report(range(40), quantity="energy"))
    assert text == "there is no linear.triton M=8,K=64 energy"


def exact(commits, quantity, **name):
    return report(commits, l2="", quantity=quantity, **name)


def test_an_exact_quantity_is_missed_where_no_time_is_beside_it():
    """A compiled history alone has no time that would be missing too."""
    gone = [exact(range(50), quantity, case="M=1") for quantity in ("spills", "shared")]
    compiled = [exact(range(60), "spills"), *gone]
    [(topic, _, after, text)] = alerts_of(*compiled)
    assert (topic, after) == ("vanished", COMMITS[50].hash)
    assert text == "there is no linear.triton M=1"
    launches = exact(range(60), "launches", case="M=1")
    assert alerts_of(*compiled, launches) == [], "the case goes on, without a kernel that is compiled"
    timed = report(range(60), case="M=1")
    assert alerts_of(*compiled, timed) == [], "its time goes on, which it explains"
    [(_, _, _, text)] = alerts_of(*compiled, report(range(60)), report(range(50), case="M=1"))
    assert text == "there is no linear.triton M=1"


def test_a_benchmark_that_vanished():
    series = [STEADY, report(range(50)), report(range(50), case="M=1")]
    [alert] = found_in(*series)
    assert (alert.topic, alert.before, alert.after) == ("vanished", COMMITS[49].hash, COMMITS[50].hash)
    assert alert.text == "there is no linear.triton"


def test_a_benchmark_that_vanished_blames_no_commit():
    """It is gone at the next commit that was measured, which need not be the one that removed it."""
    [alert] = found_in(STEADY, report(range(50)))
    assert (alert.suspects, alert.range) == ((), f"{COMMITS[49].hash[:8]}..{COMMITS[50].hash[:8]}")
    assert culprits(alert) == f"between the measured commits {COMMITS[49].hash[:12]} and {COMMITS[50].hash[:12]}"


def test_what_began_where_a_benchmark_ended_is_named():
    [(topic, _, after, text)] = alerts_of(STEADY, report(range(50)), report(range(50, 60), variant="fast"))
    assert (topic, after) == ("vanished", COMMITS[50].hash)
    assert text == ("there is no linear.triton; linear.fast began there")


SUITE = ("linear", "kda", "hgemm", "grouped", "w4a16")


def suite(ends, *, only=()):
    """The reports of several families that are measured at each commit up to ``ends``, and ``only`` afterwards."""
    return [report(range(60 if family in only else ends), family=family) for family in SUITE]


def test_families_that_were_not_asked_for_are_not_missed():
    assert alerts_of(*suite(52, only=("linear",))) == []
    assert alerts_of(*suite(52, only=("linear", "kda"))) == []


def test_families_that_nobody_measures_any_more_are_missed_after_ten_commits():
    [(topic, family, after, text)] = alerts_of(*suite(50, only=("linear",)))
    assert (topic, family, after) == ("vanished", "", COMMITS[50].hash)
    assert text == "there is no grouped, hgemm, kda, w4a16"


def asv(name, commits, case=""):
    """The report of another project's benchmark."""
    suite, _, function = name.rpartition(".")
    return reported(commits, SeriesName("h200", suite, suite, function, case, "", "seconds"))


KEPT = [asv("io.Read.time_csv", range(60)), asv("ops.Join.time_inner", range(60))]


def test_a_class_of_which_nothing_is_left_is_one_alert():
    gone = [asv(f"ops.Sort.time_{size}", range(50)) for size in ("small", "large")]
    assert alerts_of(*KEPT, *gone) == [("vanished", "ops.Sort", COMMITS[50].hash, "there is no ops.Sort")]


def test_a_module_and_a_parameter_that_go_with_one_commit_are_one_alert():
    gone = [asv(f"old.{room}.time_{name}", range(50)) for room in "AB" for name in "xy"]
    values = [asv("io.Read.time_json", range(60), "n=1"), asv("io.Read.time_json", range(50), "n=2")]
    [(topic, family, after, text)] = alerts_of(*KEPT, *gone, *values)
    assert (topic, family, after) == ("vanished", "", COMMITS[50].hash)
    assert text == "there is no io.Read.time_json n=2, old"


def test_what_goes_at_two_commits_is_two_alerts():
    found = alerts_of(*KEPT, asv("a.A.time_x", range(40)), asv("b.B.time_x", range(50)))
    assert [(topic, after) for topic, _, after, _ in found] == [
        ("vanished", COMMITS[40].hash),
        ("vanished", COMMITS[50].hash),
    ]


def test_a_class_that_goes_on_under_another_name_is_named_with_it():
    names = ("small", "large")
    old = [asv(f"ops.Sort.time_{name}", range(50)) for name in names]
    new = [asv(f"ops.Sorter.time_{name}", range(50, 60)) for name in names]
    [(topic, family, _, text)] = alerts_of(*KEPT, *old, *new)
    assert (topic, family) == ("vanished", "ops.Sort")
    assert "there is no ops.Sort; ops.Sorter began there" in text
    # Another count of cases, or begun before: not the same under another name.
    others = [
        [asv(f"ops.Sorter.time_{name}", range(50, 60), f"n={n}") for name in names for n in (1, 2)],
        [asv(f"ops.Sorter.time_{name}", range(40, 60)) for name in names],
    ]
    for other in others:
        assert "began there" not in alerts_of(*KEPT, *old, *other)[0][3]


def test_what_two_families_lost_at_one_commit_is_one_alert():
    assert headline(found_in(*KEPT, *suite(50))[0]).startswith(
        "several benchmarks on h200 vanished since 32323232: there is no "
    )


def test_a_parameter_value_that_is_written_differently_is_named_with_the_new_one():
    old = [asv("f.F.time_x", range(50), f"norm={{'a': {n}.26}}") for n in range(3)]
    new = [asv("f.F.time_x", range(50, 60), f"norm={{'a': {n}.31}}") for n in range(3)]
    [(_, _, _, text)] = alerts_of(*KEPT, *old, *new)
    assert "f.F.time_x norm={'a': 1.26}" in text.partition("; ")[0]
    assert "f.F.time_x norm={'a': 1.31}" in text.partition("; ")[2]


def test_a_silent_machine_is_named_with_its_day():
    alert = silence("h200", COMMITS[-1].hash, COMMITS[-1].date)
    assert (alert.topic, alert.family, alert.before) == ("silent", "", COMMITS[-1].hash)
    assert alert.text == "h200 has reported nothing since 2026-11-19"


def test_five_are_named_and_the_others_counted():
    gone = [report(range(57), case=f"M={m}") for m in range(1, 8)]
    [(_, _, _, text)] = alerts_of(STEADY, report(range(60)), *gone)
    assert text.startswith("there is no linear.triton M=1, ")
    assert text.endswith("linear.triton M=5 and 2 more")


@pytest.mark.parametrize(("last", "old"), [(28, True), (29, False)])
def test_what_stopped_long_ago_is_history(last, old):
    [alert] = found_in(STEADY, report(range(last)))
    assert alert.old == old


def test_neither_many_commits_nor_many_days_are_long_ago():
    hourly = [replace(commit, date=START + n * DAY // 24) for n, commit in enumerate(COMMITS)]
    assert not is_old(20, hourly)
    assert not is_old(50, [replace(commit, date=START + n * 10 * DAY) for n, commit in enumerate(COMMITS)])
