"""Points that copy the numbers of the same work, and series that move from one GPU to another."""

import datetime
import json

import numpy as np
import pytest
from history import DAY_MS, START_MS, VARIANT, Here, commits_of, write_history
from trees import points_in
from verb import run_verb

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.alert_row import from_json, to_json
from lockstep.alerts.story import tell
from lockstep.compare.difference import compare_rows
from lockstep.compare.read_rows import newest_rows, rows_at
from lockstep.compare.verdict import LOUDEST
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

LENGTH, AT = 36, 20
NOW = datetime.datetime.fromtimestamp((START_MS + LENGTH * DAY_MS) / 1000, datetime.UTC)
OLD, NEW = (f"GPU-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "ab")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("copies") / "repo"
    return root, commits_of(root, LENGTH)


@pytest.fixture
def analysed(repository, tmp_path, monkeypatch):
    root, commits = repository
    monkeypatch.chdir(tmp_path)  # asv changes to the folder of its settings

    def analyse(plan, at_bridge=None):
        """Merge and analyse a history of one machine. A shard measured the commit ``AT`` too, by ``at_bridge``."""
        write_history(tmp_path / "shards" / "new", "gpu", commits, plan)
        if at_bridge:
            write_history(tmp_path / "shards" / "old", "gpu", commits, at_bridge, first=AT, every=LENGTH)
        settings = tmp_path / "asv.conf.json"
        settings.write_text(json.dumps({"version": 1, "repo": str(root), "results_dir": str(tmp_path / "results")}))
        for shard in (tmp_path / "shards").iterdir():
            assert run_verb("--config", settings, "merge", shard) == 0
        results = Store.open(tmp_path / "results", cache=tmp_path / "cache").current()
        assert results.problems == ()
        ranges, kept = Ranges(root, ("kernels",)), AnalysisFile(tmp_path / "found")
        return results, analyse_results(results, Thresholds(), ranges, NOW, kept)

    return analyse


def on(gpu, slower=1.0):
    return Here(slower=slower, host={"gpu_uuid": gpu})


def variants_changes(found):
    return [change for change in found.changes if change.series.variant == VARIANT]


def of(results, quantity="speedup"):
    [*trends] = results.trends(results.series(benchmark=f"linear.{quantity}", axes={"variant": VARIANT}))
    return trends


def test_a_copy_is_stored_with_the_commit_that_was_timed(analysed, repository):
    _, commits = repository
    results, _ = analysed(lambda n: Here(copies=3 if n in (4, 5) else None))
    for trend in of(results):
        assert np.flatnonzero(trend.same_work_as).tolist() == [4, 5]
        assert trend.value[4] == trend.value[3] == trend.value[5]
        points = points_in(results, trend.series)
        assert [point.same_work_as for point in points[3:7]] == ["", commits[3], commits[3], ""]
        assert points[4].note == f"same work as {commits[3][:8]} (not timed again)"


def test_copies_are_no_evidence(analysed):
    """One wrong measurement, copied twenty times, is not a level."""
    _, found = analysed(lambda n: Here(slower=1.04 if n == AT else 1.0, copies=AT if n > AT else None))
    assert found.changes == ()


def test_copies_of_a_check_are_no_checks(analysed):
    """Eight checks with equal bits make a variant deterministic again; one check that is copied does not."""
    _, found = analysed(lambda n: Here(deterministic=n != 10, copies=AT if n > AT or 10 < n < AT else None))
    changes = [change for change in found.changes if change.series.quantity == "deterministic"]
    assert changes
    assert all(change.left != 0 for change in changes), "nobody has checked often enough that it returned"


def test_a_measurement_counts_alone_beside_a_copy_of_its_commit(analysed):
    results, _ = analysed(
        lambda n: Here(slower=1.3 if n == 0 else 1.0, copies=0 if n == AT else None), at_bridge=lambda n: Here()
    )
    for trend in of(results):
        assert trend.same_work_as[AT] == 0
        assert trend.value[AT] == pytest.approx(trend.value[AT - 1], rel=0.01)


@pytest.mark.parametrize("away", [0, 5])
def test_copies_narrow_the_range_of_a_change_from_both_sides(analysed, repository, away):
    """Only every fifth commit was timed; the change is at commit ``AT + 3``, whose work the others copy.

    They copy the nearest timed commit at their level, or the one beyond it.
    """
    _, commits = repository
    step = AT + 3
    sources = AT - away, AT + 5 + away

    def plan(n):
        timed = n % 5 == 0
        nearest = n - n % 5 if n < AT or n > AT + 5 else sources[n >= step]
        return Here(slower=1.05 if n >= step else 1.0, copies=None if timed or nearest >= LENGTH else nearest)

    _, found = analysed(plan)
    changes = variants_changes(found)
    assert changes
    for change in changes:
        assert change.cause.kind == "own commit"
        assert (change.before, change.between) == (commits[step - 1], (commits[step],))
    [alert] = [alert for alert in found.alerts if alert.topic == "slower"]
    assert alert.commits == (commits[step],)
    proven = [
        f"{commits[end][:12]}, which gives the GPU the same work as {commits[like][:12]}"
        for end, like in zip((step - 1, step), sources, strict=True)
    ]
    assert tell(alert).since == f"commit {commits[step][:12]}; proven by {', and by '.join(proven)}"
    assert from_json(to_json(alert)) == alert


def test_a_series_that_is_only_copied_still_reports(analysed):
    _, found = analysed(lambda n: Here(copies=AT if n > AT else None))
    assert found.alerts == ()


@pytest.mark.parametrize(
    ("slower", "why", "topics"),
    [
        (1.02, "GPUs of one model differ by up to 3%", []),
        (1.2, "no commit was measured on both", ["slower"]),
    ],
)
def test_a_step_at_a_move_to_another_gpu_is_the_machines(analysed, slower, why, topics):
    """It is quiet if it is no larger than the difference between two GPUs."""
    _, found = analysed(lambda n: on(NEW, slower) if n >= AT else on(OLD))
    changes = variants_changes(found)
    assert changes
    for change in changes:
        assert (change.cause.kind, change.suppressed) == ("machine", "" if topics else "moved")
        assert change.cause.sentence == f"the series moved to another GPU: GPU aaaaaaaa → bbbbbbbb; {why}"
    assert [alert.topic for alert in found.alerts] == topics
    assert {alert.cause.kind for alert in found.alerts} <= {"machine"}


def test_a_move_to_another_gpu_and_back_explains_no_step(analysed):
    """Both levels are of one GPU. The commit ``AT``, which the other GPU measured, lies between them."""
    _, found = analysed(lambda n: on(NEW, 1.1) if n == AT else on(OLD, 1.2 if n > AT else 1.0))
    changes = variants_changes(found)
    assert {change.cause.kind for change in changes} == {"own commit"}
    assert not any("another GPU" in change.cause.sentence for change in changes)


@pytest.mark.parametrize(("slower", "kinds"), [(1.0, {"machine"}), (1.06, {"own commit"})])
def test_a_commit_measured_on_both_gpus_tells_what_the_move_explains(analysed, slower, kinds):
    """The new GPU is 3 % slower, as the commit ``AT`` shows on both. What the commits changed beyond it is theirs."""
    results, found = analysed(
        lambda n: on(NEW, 1.03 * slower) if n >= AT else on(OLD), at_bridge=lambda n: on(OLD, slower)
    )
    for trend in of(results):
        assert np.flatnonzero(np.isfinite(trend.bridge)).tolist() == [AT]
        assert trend.bridge[AT] == pytest.approx(-np.log(1.03), abs=0.005)
        assert len(trend) == LENGTH
        assert "on GPU aaaaaaaa" in points_in(results, trend.series)[AT].note
    changes = variants_changes(found)
    assert {change.cause.kind for change in changes} == kinds
    if slower == 1.0:
        assert "a commit measured on both" in changes[0].cause.sentence
        assert found.alerts == ()
    else:
        assert [alert.topic for alert in found.alerts] == ["slower"]


@pytest.mark.parametrize(
    ("gpu", "slower", "verdict"), [(OLD, 1.02, "slower"), (NEW, 1.02, "unsure"), (NEW, 1.2, "slower")]
)
def test_the_overview_calls_nothing_slower_that_two_gpus_explain(analysed, gpu, slower, verdict):
    results, _ = analysed(lambda n: on(gpu, slower) if n >= AT else on(OLD))
    before, rows = rows_at(results, "gpu", results.commits("gpu")[0].hash), newest_rows(results, "gpu")
    earlier = before.place[rows.columns["key"]]
    found = compare_rows(before, earlier, rows, Thresholds(), dict.fromkeys(rows.keys, 0.001))
    variants = [key.variant == VARIANT for key in rows.keys]
    assert {LOUDEST[code] for code in found.verdict[variants]} == {verdict}


@pytest.mark.parametrize("two_runs", [None, "latency"])
def test_a_copy_is_the_same_as_the_commit_that_was_timed_however_noisy_the_series(analysed, two_runs):
    results, _ = analysed(lambda n: Here(copies=AT if n > AT else None))
    newest = newest_rows(results, "gpu")
    verdicts = []
    for commit in (AT - 1, AT, AT + 1):
        before = rows_at(results, "gpu", results.commits("gpu")[commit].hash)
        noise = dict.fromkeys(newest.keys, 0.05)
        found = compare_rows(before, before.place[newest.columns["key"]], newest, Thresholds(), noise, None, two_runs)
        verdicts.append({LOUDEST[code] for code in found.verdict})
    assert verdicts == [{"unsure"}, {"same"}, {"same"}]
