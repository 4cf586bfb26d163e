"""From results on disk to alerts: each planted event is named as what it is, and nothing else rings."""

import datetime
import math
import random
from pathlib import Path

import pytest
from history import CASES, DAY_MS, START_MS, Here, commits_of, write_foreign, write_history

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds, read_thresholds

LENGTH, AT = 36, 20
NOW = datetime.datetime.fromtimestamp((START_MS + LENGTH * DAY_MS) / 1000, datetime.UTC)
ROOT = Path(__file__).parents[2]
_MODES = random.Random(3).choices([1.0, 1.04], k=LENGTH)

PLANTED = {
    "quiet": lambda n: Here(),
    "slowdown": lambda n: Here(slower=1.05 if n >= AT else 1.0),
    "improved": lambda n: Here(slower=0.9 if n >= AT else 1.0),
    "fixed": lambda n: Here(slower=1.05 if AT <= n < AT + 8 else 1.0),
    "toolchain": lambda n: Here(baseline=0.93, host={"torch": "2.13.0"}) if n >= AT else Here(),
    "machine": lambda n: Here(everything=1.08, host={"gpu_uuid": "GPU-2"}) if n >= AT else Here(),
    "protocol": lambda n: Here(slower=1.1, protocol=2) if n >= AT else Here(),
    "version": lambda n: Here(slower=1.3, version="ruler2") if n >= AT else Here(),
    "new ruler after": lambda n: Here(slower=1.05 if n >= AT else 1.0, version="ruler1" if n < AT + 8 else "ruler2"),
    "unchanged code": lambda n: Here(slower=1.02 if n >= AT else 1.0, code="aa"),
    "changed code": lambda n: Here(slower=1.02, code="bb") if n >= AT else Here(code="aa"),
    "bimodal": lambda n: Here(slower=_MODES[n]),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Results of one machine for each planted event, in a repository where every fourth commit touches kernels/."""
    root = tmp_path_factory.mktemp("planted") / "repo"
    commits = commits_of(root, LENGTH, touch=lambda n: n % 4 == 0)
    for machine, plan in PLANTED.items():
        write_history(root / "results", machine, commits, plan)
    write_history(root / "results", "seldom", commits, PLANTED["slowdown"], first=1, every=2)
    results = Store.open(root / "results", cache=root.parent / "cache").current()
    kept = AnalysisFile(root.parent / "found")
    return results, commits, analyse_results(results, Thresholds(), Ranges(root, ("kernels",)), NOW, kept), kept


def alerts_on(picture, machine):
    return [one for one in picture.alerts if one.machine == machine]


def test_a_quiet_machine_and_a_bimodal_one_ring_for_nothing(planted):
    _, _, picture, _ = planted
    assert alerts_on(picture, "quiet") == []
    assert alerts_on(picture, "bimodal") == []


def test_a_slowdown_is_the_commit_that_made_it(planted):
    _, commits, picture, _ = planted
    [alert] = alerts_on(picture, "slowdown")
    assert (alert.topic, alert.cause.kind, alert.family) == ("slower", "own commit", "linear")
    assert alert.commits == (commits[AT],) == alert.suspects
    assert alert.before == commits[AT - 1]
    assert {member.series.case for member in alert.members} == set(CASES)
    assert all(0.044 < member.size < 0.0535 for member in alert.members)


def test_an_improvement_is_recorded(planted):
    _, _, picture, _ = planted
    [alert] = alerts_on(picture, "improved")
    assert (alert.topic, round(math.exp(alert.members[0].size), 2)) == ("faster", 0.9)


def test_a_change_of_the_toolchain(planted):
    _, _, picture, _ = planted
    causes = {alert.cause.kind for alert in alerts_on(picture, "toolchain")}
    assert causes == {"toolchain"}
    [alert] = alerts_on(picture, "toolchain")
    assert "torch 2.11.0 → 2.13.0" in alert.cause.sentence


def test_a_change_of_the_machine_is_reported_by_the_baselines_alone(planted):
    _, _, picture, _ = planted
    [alert] = alerts_on(picture, "machine")
    assert alert.cause.kind == "machine"
    assert {member.series.variant for member in alert.members} == {"torch"}
    assert "control copy +8.0%" in alert.cause.sentence
    assert "gpu_uuid GPU-1 → GPU-2" in alert.cause.sentence


def test_another_way_of_measuring(planted):
    _, _, picture, _ = planted
    [alert] = alerts_on(picture, "protocol")
    assert (alert.cause.kind, alert.cause.sentence) == ("protocol", "it is measured differently: protocol 1 → 2")
    assert alerts_on(picture, "version") == [], "a new version is a new series, and no news"


def test_a_change_of_code_that_did_not_change_is_noise(planted):
    _, _, picture, _ = planted
    assert alerts_on(picture, "unchanged code") == []
    found = [one for one in picture.changes if one.series.machine == "unchanged code"]
    assert [(one.cause.kind, one.suppressed) for one in found] == [("noise", "noise")] * 3


def test_changed_machine_code_is_shown_with_the_alert(planted):
    _, _, picture, _ = planted
    [alert] = alerts_on(picture, "changed code")
    assert alert.cause.sentence == "a commit changed it: matmul machine code changed"


def test_a_new_benchmark_version_does_not_hide_an_old_slowdown(planted):
    _, commits, picture, _ = planted
    alerts = {one.topic: one for one in alerts_on(picture, "new ruler after")}
    assert (alerts["slower"].commits, alerts["slower"].gone) == ((commits[AT],), False)


def stepped(folder, commits, levels):
    """What is found where the variant takes this many times as long from each of these commits on."""

    def here(n):
        return Here(slower=levels[max(start for start in levels if start <= n)])

    write_history(folder / "results", "h200", commits, here)
    results = Store.open(folder / "results", cache=folder / "cache").current()
    return analyse_results(results, Thresholds(), Ranges(folder / "repo"), NOW, AnalysisFile(folder))


def test_what_is_left_of_a_gain_is_left_at_the_newest_level(tmp_path):
    commits = commits_of(tmp_path / "repo", LENGTH)
    found = stepped(tmp_path, commits, {0: 1.0, 12: 0.9, 20: 0.8, 28: 1.0})
    left = {change.left for change in found.changes if change.commit == commits[12]}
    assert left
    assert all(abs(each) < 0.01 for each in left)


def test_a_slowdown_that_was_mended_before_the_next_one_is_gone(tmp_path):
    commits = commits_of(tmp_path / "repo", LENGTH)
    found = stepped(tmp_path, commits, {0: 1.0, 12: 1.05, 20: 1.0, 28: 1.3})
    slower = {one.after: one.gone for one in found.alerts if one.topic == "slower"}
    assert slower == {commits[12]: True, commits[28]: False}


def test_kept_and_followed_until_it_is_closed(planted, tmp_path):
    _, _, picture, _ = planted
    store = AlertStore(Database(tmp_path / "alerts.sqlite"))
    store.sync(picture)
    again = store.sync(picture)
    assert (again.opened, again.reopened, again.resolved) == ((), (), ())
    kept = {one.alert.machine: (one.state, one.ending) for one in store.alerts()}
    assert kept["slowdown"] == kept["toolchain"] == kept["machine"] == kept["protocol"] == ("new", "")
    fixed = {(one.alert.topic, one.state, one.ending) for one in store.alerts(machine="fixed")}
    assert fixed == {("slower", "resolved", "fixed"), ("faster", "resolved", "recorded")}
    assert kept["improved"] == ("resolved", "recorded")


def test_replayed_commit_by_commit_each_event_opens_one_alert(planted, tmp_path):
    """Analyse a history night by night: the store never has two alerts for one event."""
    _, commits, _, _ = planted
    store = AlertStore(Database(tmp_path / "alerts.sqlite"))
    root = tmp_path / "repo"
    for upto in range(AT, LENGTH + 1, 4):
        write_history(root / "results", "slowdown", commits[:upto], PLANTED["slowdown"])
        results = Store.open(root / "results", cache=tmp_path / "cache").current()
        now = datetime.datetime.fromtimestamp((START_MS + upto * DAY_MS) / 1000, datetime.UTC)
        store.sync(
            analyse_results(results, Thresholds(), Ranges(root), now, AnalysisFile(tmp_path / "found")),
            now.date(),
        )
    [one] = store.alerts()
    assert (one.state, one.alert.topic, len(one.alert.members)) == ("new", "slower", 3)


def test_thresholds_decide_what_is_reported(planted, tmp_path):
    results, _, _, kept = planted
    path = tmp_path / "thresholds.toml"
    path.write_text(
        """
        [[rule]]
        match = { case = "M=1,*" }
        min_effect = "20 %"
        [[rule]]
        match = { case = "M=8,*" }
        owner = "small-batch"
        [[accept]]
        match = { variant = "triton" }
        slower_by = "6 %"
        of = "#20"
        because = "exact rounding"
        """
    )
    picture = analyse_results(results, read_thresholds(path), Ranges(tmp_path), NOW, kept)
    [alert] = alerts_on(picture, "slowdown")
    assert {member.series.case for member in alert.members} == {"M=8,K=64", "M=64,K=64"}
    assert (alert.owner, alert.waiver) == ("small-batch", None)
    assert {one.suppressed for one in picture.changes if one.series.machine == "slowdown"} == {"", "small"}


def test_another_projects_tree_is_explained_by_what_asv_stores(tmp_path):
    commits = commits_of(tmp_path / "repo", LENGTH)
    results = tmp_path / "repo" / "results"

    def step(before, after):
        return lambda n: after if n >= AT else before

    write_foreign(results, "commit", commits, step(1e-3, 1.1e-3), requirements=lambda n: {"numpy": "1"})
    write_foreign(results, "unrecorded", commits, step(1e-3, 1.1e-3))
    write_foreign(results, "toolchain", commits, step(1e-3, 1.2e-3), requirements=step({"numpy": "1"}, {"numpy": "2"}))
    write_foreign(results, "quiet", commits, lambda n: 1e-3)
    found = Store.open(results, cache=tmp_path / "cache").current()
    picture = analyse_results(found, Thresholds(), Ranges(results), NOW, AnalysisFile(tmp_path / "found"))
    alerts = {one.machine: one for one in picture.alerts}
    assert {machine: one.cause.kind for machine, one in alerts.items()} == {
        "commit": "own commit",
        "unrecorded": "unknown cause",
        "toolchain": "toolchain",
    }
    assert (alerts["commit"].family, alerts["commit"].commits) == ("sorting.TimeSort", (commits[AT],))
    assert alerts["commit"].members[0].series.label.startswith("sorting.TimeSort.time_sort size=")
    assert "numpy 1 → 2" in alerts["toolchain"].cause.sentence


def test_the_recorded_history_rings_for_what_changed_alone(tmp_path):
    results = Store.open(ROOT / "results", cache=tmp_path).current()
    now = datetime.datetime.fromtimestamp(results.machines["h200-unlocked"].last_date / 1000, datetime.UTC)
    picture = analyse_results(results, Thresholds(), Ranges(ROOT, ("kernels",)), now, AnalysisFile(tmp_path / "found"))
    assert sum(picture.series.values()) > 500
    # A real one: commits of this range changed the kernel's code.
    (slower,) = [one for one in alerts_on(picture, "h200-unlocked") if one.topic == "slower"]
    # The best variant slowed down with it, and gained at the next measured commit: that gain is no part of the alert.
    assert [(one.series.variant, one.size > 0) for one in slower.members] == [("planes", True)]
    assert {one.series.case for one in slower.members} == {"M=256,K=8192,N=8192,group=128"}
    assert (slower.before[:8], slower.commits[-1][:8]) == ("267e5d01", "177708fb")
    assert slower.cause.kind == "own commit"
    assert slower.cause.sentence == "a commit changed it: _multiply_planes instructions 1532 → 1533"
