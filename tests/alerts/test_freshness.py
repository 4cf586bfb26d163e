"""A series that is no longer measured is reported, one that was not selected is not."""

import pytest
from alerting import series

from lockstep.alerts.analysis.freshness import MachineReports, Reports, dead_machines, freshness, is_old
from lockstep.alerts.text import culprits

DAY = 86_400_000
START = 1_790_000_000_000
COMMITS = [(f"{n:02x}" * 20, START + n * DAY) for n in range(60)]
NOW = COMMITS[-1][1] + DAY


def report(commits, states="number", versions="v1", **name):
    commits = list(commits)
    states = [states] * len(commits) if isinstance(states, str) else states
    versions = [versions] * len(commits) if isinstance(versions, str) else versions
    return Reports(series(**name), commits, states, versions)


def alerts_of(*series, now=NOW, commits=COMMITS):
    found = freshness(MachineReports("h200", commits, commits[-1][1], series), now)
    return [(one.topic, one.family, one.after, one.text) for one in found]


STEADY = report(range(60), variant="torch")


def test_series_that_report_give_no_alert():
    assert alerts_of(STEADY, report(range(60))) == []


def test_a_stopped_case_is_reported_after_three_commits():
    assert alerts_of(STEADY, report(range(60)), report(range(57), case="M=1")) == [
        ("stopped", "linear", COMMITS[57][0], "since 39393939 1 series reports nothing: linear.triton M=1 cold")
    ]
    assert alerts_of(STEADY, report(range(60)), report(range(58), case="M=1")) == []


def test_a_failing_case_is_reported_at_once():
    states = ["number"] * 59 + ["failed"]
    [(topic, _, after, text)] = alerts_of(STEADY, report(range(60), states), report(range(60), case="M=1"))
    assert (topic, after) == ("stopped", COMMITS[59][0])
    assert text == "since 3b3b3b3b 1 series fails: linear.triton M=8,K=64 cold"


def test_one_commit_that_breaks_some_and_silences_others_is_one_alert():
    failing = report(range(60), ["number"] * 50 + ["failed"] * 10, case="M=2")
    [(topic, _, after, text)] = alerts_of(STEADY, report(range(60)), failing, report(range(50), case="M=1"))
    assert (topic, after) == ("stopped", COMMITS[50][0])
    assert (
        text
        == "since 32323232 1 series fails: linear.triton M=2 cold; 1 series reports nothing: linear.triton M=1 cold"
    )


def test_what_never_had_a_number_is_not_missed():
    assert alerts_of(STEADY, report(range(60), "na"), report(range(60), "failed", case="M=1")) == []


def test_a_benchmark_that_vanished():
    series = [STEADY, report(range(50)), report(range(50), case="M=1")]
    [alert] = freshness(MachineReports("h200", COMMITS, NOW, series), NOW)
    assert (alert.topic, alert.before, alert.after) == ("vanished", COMMITS[49][0], COMMITS[50][0])
    assert alert.text == "since 32323232 there is no linear.triton"


def test_a_benchmark_that_vanished_blames_no_commit():
    """It is gone at the next commit that was measured, which need not be the one that removed it."""
    [alert] = freshness(MachineReports("h200", COMMITS, NOW, [STEADY, report(range(50))]), NOW)
    assert (alert.suspects, alert.range) == ((), f"{COMMITS[49][0][:8]}..{COMMITS[50][0][:8]}")
    assert culprits(alert) == f"between the measured commits {COMMITS[49][0][:12]} and {COMMITS[50][0][:12]}"


def test_a_benchmark_that_was_renamed():
    [(topic, _, after, text)] = alerts_of(STEADY, report(range(50)), report(range(50, 60), variant="fast"))
    assert (topic, after, text) == ("renamed", COMMITS[50][0], "linear.triton is now recorded as linear.fast")
    # Other cases: not the same thing under another name.
    assert alerts_of(STEADY, report(range(50)), report(range(50, 60), variant="fast", case="M=1"))[0][0] == "vanished"


def test_a_family_that_was_not_asked_for_is_not_missed():
    assert alerts_of(STEADY, report(range(20), family="kda")) == []


def test_a_machine_that_is_silent():
    assert alerts_of(STEADY, now=COMMITS[-1][1] + 6 * DAY) == []
    [alert] = freshness(MachineReports("h200", COMMITS, COMMITS[-1][1], [STEADY]), COMMITS[-1][1] + 7 * DAY)
    assert (alert.topic, alert.family, alert.before) == ("silent", "", COMMITS[-1][0])
    assert alert.text == "h200 has reported nothing since 2026-11-19"


@pytest.mark.parametrize(("commits", "measured_at"), [([], START), (COMMITS, 0)])
def test_a_machine_that_never_measured_is_not_silent(commits, measured_at):
    assert freshness(MachineReports("h200", commits, measured_at, []), NOW + 100 * DAY) == []


def test_a_version_that_changed_is_a_change_of_the_measuring():
    versions = ["old"] * 55 + ["new"] * 5
    reports = MachineReports(
        "h200", COMMITS, NOW, [report(range(60), versions=versions), report(range(60), case="M=1")]
    )
    [alert] = freshness(reports, NOW)
    assert (alert.topic, alert.cause.kind, alert.after) == ("version", "protocol", COMMITS[55][0])
    assert alert.before == COMMITS[54][0]
    assert "linear old → new" in alert.text


@pytest.mark.parametrize("versions", [["v1"] * 55 + [""] * 5, [""] * 55 + ["v1"] * 5])
def test_an_unknown_version_is_not_a_new_version(versions):
    assert alerts_of(STEADY, report(range(60), versions=versions)) == []


def test_five_are_named_and_the_others_counted():
    gone = [report(range(57), case=f"M={m}") for m in range(1, 8)]
    [(_, _, _, text)] = alerts_of(STEADY, report(range(60)), *gone)
    assert text.startswith("since 39393939 7 series report nothing: linear.triton M=1 cold, ")
    assert text.endswith("linear.triton M=5 cold and 2 more")


@pytest.mark.parametrize(("last", "old"), [(28, True), (29, False)])
def test_what_stopped_long_ago_is_history(last, old):
    [alert] = freshness(MachineReports("h200", COMMITS, NOW, [STEADY, report(range(last))]), NOW)
    assert alert.old == old


def test_neither_many_commits_nor_many_days_are_long_ago():
    hourly = [(commit, START + n * DAY // 24) for n, (commit, _) in enumerate(COMMITS)]
    assert not is_old(20, hourly)
    assert not is_old(50, [(commit, START + n * 10 * DAY) for n, (commit, _) in enumerate(COMMITS)])


def test_a_machine_is_dead_where_another_went_on():
    assert dead_machines({"h200": NOW, "b200": NOW - 7 * DAY, "a100": NOW - 6 * DAY}) == {"b200"}
    assert dead_machines({"h200": NOW, "b200": 0}) == set()
    # A history of two machines that is looked at a year later.
    assert dead_machines({"h200": START, "b200": START - DAY}) == set()
    assert dead_machines({}) == set()
