"""Lists of alerts begin with what is lost: how much of a time, how sure, and how new."""

import math
from dataclasses import replace

from alerting import COMMITS, alerts, series, step
from test_stopped_series import STEADY, found_in, report

from lockstep.alerts.alert_ranking import doubted, explain, rank_of
from lockstep.alerts.analysis.stopped_series import silence
from lockstep.alerts.cause.commit_notes import CommitNote
from lockstep.alerts.cause.found_change import Cause, Evidence
from lockstep.alerts.text import change, headline
from lockstep.record.series_name import SeriesName

DAY = 86_400_000
NOW = 20_000 * DAY


def alert(by=0.05, age=0, name=None, **changes):
    [one] = alerts(step(10, by=by, name=name, **changes))
    return replace(one, since=NOW - age * DAY)


def caused(cause, **changes):
    one = alert(0.2)
    return replace(one, members=tuple(replace(member, cause=cause, **changes) for member in one.members))


def order(**named):
    return sorted(named, key=lambda name: -rank_of(named[name]))


def test_the_larger_the_newer_and_the_surer_loss_comes_first():
    wide = {"low": 0.01, "high": 0.35}
    assert order(small=alert(0.02), large=alert(0.2), unsure=alert(0.2, **wide)) == ["large", "small", "unsure"]
    assert order(old=alert(0.2, age=60), new=alert(0.06)) == ["new", "old"], "a loss halves every 30 days"


def test_a_loss_that_is_probably_not_a_commits_comes_after_all_others_and_says_why():
    machine, flips = caused(Cause("machine", "")), caused(Cause("unknown range", ""), flips=True)
    [gone] = found_in(STEADY, report(range(60)), report(range(57), case="M=1"))
    assert order(machine=machine, flips=flips, old=alert(0.01, age=300), gone=gone)[:2] == ["old", "gone"]
    assert [doubted(one) for one in (machine, flips, alert(0.01, age=300), gone)] == [True, True, False, False]
    assert explain(machine) == "at least 16 % of its time is lost; the machine is the probable cause"
    assert explain(flips) == "at least 16 % of its time is lost; the series moves between these levels"
    sure = replace(flips.members[0], series=series(variant="pdl"), size=0.05, flips=False)
    both = replace(flips, members=(*flips.members, sure))
    assert "at least 3.9 % of its time is lost in linear.pdl" in explain(both), "one that is not doubted counts"
    assert not doubted(both)


def test_a_series_that_moves_or_scatters_is_doubted_unless_its_machine_code_changed():
    """asv's results without machine code name a commit because nothing that is recorded differs."""
    for cause in (Cause("own commit", ""), Cause("unknown cause", "")):
        assert explain(caused(cause, flips=True)).endswith("; the series moves between these levels")
        assert explain(caused(cause, few=True)).endswith("; few points show it yet")
        assert explain(caused(cause, noise=0.1)).endswith("; the step is within the scatter of the series")
        assert not doubted(caused(cause, noise=0.09)), "0.18 is twice 0.09"
    compiled = Cause("own commit", "", (Evidence("registers", "80", "168", "_kernel"),))
    assert not doubted(caused(compiled, flips=True, few=True, noise=0.2))


def test_a_commit_that_changes_the_benchmark_is_a_doubt():
    notes = [
        CommitNote(name * 40, "Ada", "2026-11-01", "", touches) for name, touches in (("a", "benchmark"), ("b", ""))
    ]
    changed, plain = (replace(alert(0.2), notes=tuple(some)) for some in (notes, notes[1:]))
    assert explain(changed) == "at least 16 % of its time is lost; aaaaaaaa changes the benchmark"
    assert order(changed=changed, small=alert(0.02), plain=plain) == ["plain", "small", "changed"]


def test_a_toolchain_is_a_doubt_unless_it_changed_the_machine_code_or_the_result():
    upgraded = Cause("toolchain", "", (Evidence("triton", "3.5.0", "3.6.0"),))
    compiled = replace(upgraded, evidence=(*upgraded.evidence, Evidence("registers", "80", "168", "_kernel")))
    assert explain(caused(upgraded)) == "at least 16 % of its time is lost; the toolchain is the probable cause"
    error, spills = series(quantity="error"), series(l2="", quantity="spills")
    kept = [caused(compiled), caused(upgraded, series=error), caused(upgraded, series=spills, old=0.0, new=512.0)]
    assert [doubted(one) for one in (caused(upgraded), *kept)] == [True, False, False, False]


def test_what_is_undone_at_the_newest_points_is_not_lost():
    undone = alert(0.5, left=math.log(1.5), recent=math.log(1.01))
    assert order(undone=undone, small=alert(0.03)) == ["small", "undone"]


def test_what_a_later_change_lost_is_its_own_and_leaves_a_smaller_share_to_the_earlier_one():
    later = alert(0.1, left=math.log(3.3), recent=math.log(3.3))
    assert order(later=later, own=alert(0.06)) == ["own", "later"], "0.1 of 3.3 is a smaller share than 0.06 of 1.06"
    assert explain(later) == "at least 2.9 % of its time is lost, > 99.9 % sure"
    assert explain(alert(7.0, left=math.log(80.0))) == "at least 8.7 % of its time is lost, > 99.9 % sure"


def test_times_and_failures_come_before_other_numbers_and_those_before_silence():
    spills = alert(name=series(l2="", quantity="spills"), old=0.0, new=512.0, size=math.inf, left=math.inf)
    [fails, *_] = found_in(STEADY, report(range(60), "failed", 59))
    [gone] = found_in(STEADY, report(range(60)), report(range(57), case="M=1"))
    quiet = silence("h200", COMMITS[3], NOW - 30 * DAY)
    found = order(quiet=quiet, gone=gone, spills=spills, time=alert(0.01), fails=replace(fails, since=NOW))
    assert found == ["fails", "time", "spills", "gone", "quiet"]
    assert explain(fails) == "a result is lost"
    assert explain(gone) == explain(quiet) == ""


def test_the_rank_is_explained_in_words():
    assert explain(alert(0.05)) == "at least 4.3 % of its time is lost, > 99.9 % sure"
    assert explain(alert(7.0)) == "at least 7.97 times as slow, > 99.9 % sure"
    number = series(l2="", quantity="unit")
    assert explain(alert(36.0, name=number)).startswith("at least 36.9-fold higher, ")
    assert explain(alert(0.3, name=number)).startswith("at least 29 % higher, ")
    assert explain(alert(0.3, name=number, better="higher")).startswith("at least 22 % lower, ")


def test_a_title_names_the_family_of_another_projects_benchmark_once():
    [one] = alerts(step(name=SeriesName("h200", "io.csv.Read", "io.csv.Read", "time_all", "n=8", "", "seconds")))
    assert headline(one).endswith(": time_all n=8")
    assert headline(one).count("io.csv.Read") == 1


def test_a_large_growth_is_a_factor():
    assert headline(alert(36.0)).startswith("linear on h200 slower ×37 in ")
    assert [change(math.log(factor)) for factor in (2.9, 3, 12345, 0.01)] == ["+190.0 %", "×3", "×1.23e+04", "−99.0 %"]
