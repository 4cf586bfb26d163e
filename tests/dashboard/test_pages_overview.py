"""The overview: what became slower since when, what it offers to download, and another project's results."""

import datetime
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from compared import each
from history import LEVELS, Here, commits_of, write_foreign, write_history
from served import call, cells, table_of, words
from showcase import COMMITS, FAST, FREE, SLOW, write_showcase
from sqlalchemy import update
from trees import DATE, MACHINE, analysed, open_store, record, write_measurement

from dashboard.address import OverviewAddress, parse
from dashboard.pages import overview
from dashboard.pages.family_trends import chained
from dashboard.pages.overview_answer import MOST_NEWS, news
from dashboard.pages.overview_choice import measured_rows, opening_machine
from dashboard.pages.overview_families import families
from dashboard.pages.overview_table import columns, in_order
from dashboard.server.app import create_app
from lockstep.alerts.alert_ranking import DOUBTED, rank_of
from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.listing import OpenAlerts
from lockstep.alerts.database.schema import ALERT
from lockstep.alerts.database.states_and_actions import Act
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.pages_service import AlertService
from lockstep.compare.series_status import reference
from lockstep.suite.thresholds import Thresholds


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The store of the showcase, and what was found in it."""
    results, repo = write_showcase(tmp_path_factory.mktemp("showcase"))
    store = open_store(results, repo=repo)
    return store, analysed(store, repo)


def stand(shown, machine=FAST, since="all"):
    store, findings = shown
    return overview.statuses_of(store.current(), machine, since, 0, findings)


def test_the_overview_opens_on_the_longest_history_that_still_grows(tmp_path):
    """Neither the machine with the most series, nor an older history that ended."""
    commits, results = commits_of(tmp_path / "repo", 20), tmp_path / "repo" / "results"
    write_history(results, "ended", commits[:12], lambda n: Here())
    write_history(results, "long", commits, lambda n: Here(), first=12)
    write_history(results, "wide", commits, lambda n: Here(costs=dict.fromkeys(LEVELS, 1.0)), first=18)
    assert opening_machine(open_store(results).current()) == "long"


def test_what_the_detector_found_since_then_counts_as_slower(shown, tmp_path):
    store, findings = shown
    found = {one.row.case: one for one in each(stand(shown)) if one.row.variant == "triton"}
    assert [found[case].verdict for case in ("M=1,K=64", "M=8,K=64", "M=64,K=64")] == ["slower", "slower", "failed"]
    assert found["M=1,K=64"].worse == pytest.approx(0.0677, abs=0.003)
    later = store.current().commits(FAST)[COMMITS - 5].hash
    assert {one.verdict for one in each(stand(shown, since=later))} <= {"same", "unsure", "failed"}
    alerts = AlertStore(Database(tmp_path / "alerts.sqlite"))
    alerts.sync(analyse_store(store, Thresholds(), tmp_path)[1])
    told = alerts.open_on(FAST, MOST_NEWS)
    assert "slower by 7." in words(news(told, FAST, 0))
    assert "muted" not in words(news(told, FAST, 0))
    service = AlertService(alerts)

    def headline():
        return words(overview.said(store.current(), FAST, "all", 0, findings, service.quiet_on(FAST)))

    assert f"On {FAST} since" in headline()
    assert "2 slowdowns of time" in headline()
    away = alerts.open_on(SLOW, MOST_NEWS)
    line = words(overview.said(store.current(), SLOW, "all", 0, findings, alerts=away))
    assert f"Elsewhere {sum(away.elsewhere.values())} alerts are open, the gravest: " in line
    assert f"/alert/{away.gravest.id}" in line
    assert "muted" not in headline()
    [slower] = [one for one in told.first if one.alert.topic == "slower"]
    ranked = update(ALERT).where(ALERT.c.id == slower.id)
    with alerts.database.write() as connection:
        connection.execute(ranked.values(rank=2 * DOUBTED))
    assert "2 slowdowns muted or probably not the code's" in headline()
    assert "slowdowns of time" not in headline()
    with alerts.database.write() as connection:
        connection.execute(ranked.values(rank=rank_of(slower.alert)))
    assert "2 slowdowns of time" in headline()
    alerts.act(slower.id, Act("mute", "ada", "known", until=datetime.date(2999, 1, 1)))
    assert "slowdowns of time" not in headline()
    assert "nothing got slower" in headline()
    assert "2 slowdowns muted or probably not the code's" in headline()
    assert "1 muted" in words(news(alerts.open_on(FAST, MOST_NEWS), FAST, 0))


@pytest.mark.parametrize(
    ("since", "visit", "place"),
    [
        ("all", 0, 0),
        ("7d", 0, COMMITS - 8),
        ("visit", 0, COMMITS - 8),
        ("visit", "now", COMMITS - 1),
        ("nonsense", 0, COMMITS - 8),
    ],
)
def test_since_means_a_commit(shown, since, visit, place):
    results = shown[0].current()
    commits = results.commits(FAST)
    at = commits[-1].date + 86_400_000 if visit == "now" else visit
    assert reference(results, FAST, since, at) == commits[place]
    assert reference(results, FAST, commits[7].hash) == commits[7]


def test_since_may_be_a_date(shown):
    store, findings = shown
    results = store.current()
    run = results.runs_of(FAST)[7]
    begun = datetime.datetime.fromtimestamp((run.measured_at or run.date) / 1000, datetime.UTC).date()
    assert reference(results, FAST, str(begun)) == results.commits(FAST)[6]
    assert f"since {begun.day} {begun:%B}" in words(overview.said(results, FAST, str(begun), 0, findings))
    assert f'"value": "{begun}"' in words(overview.layout(results, OverviewAddress(FAST, since=str(begun))))


def test_the_first_line_answers_whether_anything_became_slower(shown):
    store, findings = shown
    answered = words(overview.said(store.current(), FAST, "all", 0, findings))
    assert "2 slowdowns of time" in answered
    assert "linear triton +7." in answered
    assert "1 case now fails" in answered
    assert f"Nothing got slower on {SLOW} since" in words(overview.said(store.current(), SLOW, "all", 0, findings))
    older = OpenAlerts((), {"new": 2}, {})
    quiet = words(overview.said(store.current(), SLOW, "all", 0, findings, alerts=older))
    assert f"No new slowdown on {SLOW} since" in quiet
    assert "; 2 alerts are open." in quiet


def test_the_first_line_says_how_small_a_slowdown_could_have_been_seen(tmp_path):
    repo = tmp_path / "repo"
    write_history(repo / "results", "cpu", commits_of(repo, 8), lambda n: Here(mde=1.77))
    store = open_store(repo / "results", repo=repo, cache=tmp_path / "cache")
    quiet = words(overview.said(store.current(), "cpu", "all", 0, analysed(store, repo)))
    assert "Nothing got slower on cpu since" in quiet
    assert "the first commit (one run shows changes from 177 % on in half of the cases)." in quiet


def test_memory_is_no_slowdown_and_a_number_without_a_direction_is_not_passed_over(tmp_path):
    commits = commits_of(tmp_path / "repo", 30)
    root = tmp_path / "repo" / "results"
    write_foreign(root, "runner", commits, lambda n: 1e-3)
    path = root / "benchmarks.json"
    table = json.loads(path.read_text())
    [name] = [name for name, entry in table.items() if isinstance(entry, dict)][:1]

    def answered(kind, unit, factor):
        write_foreign(root, "runner", commits, lambda n: (factor if n >= 15 else 1.0) * 1e6)
        path.write_text(json.dumps(json.loads(path.read_text()) | {name: table[name] | {"type": kind, "unit": unit}}))
        store = open_store(tmp_path / "repo" / "results", repo=tmp_path / "repo", cache=tmp_path / kind)
        return words(overview.said(store.current(), "runner", "all", 0, analysed(store, tmp_path / "repo")))

    memory = answered("peakmemory", "bytes", 1.2)
    assert "nothing got slower" in memory
    assert "became worse" in memory
    assert "slowdown" not in memory
    things = answered("track", "things", 1.2)
    assert "changed whose better direction thresholds.toml does not state" in things
    assert "nothing got slower" not in things, "nobody knows"
    assert "time_sort +20." in things


def test_the_menu_names_the_weekday_before_which_a_commit_was_measured(shown):
    labels = [one["label"] for one in overview._sinces(shown[0].current(), FAST, "2026-11-20")]
    assert "before Fri 2026-11-20" in labels


def test_a_family_has_one_row_with_the_loudest_variant_of_each_shape(shown):
    table = families(shown[0].current(), in_order(stand(shown)))
    [(family, row)] = cells(table).items()
    assert family == "linear"
    assert [(sign, kind) for sign, kind, _ in row] == [("▼", "cell slower"), ("▼", "cell slower"), ("✕", "cell")]
    assert all("linear triton" in tip and re.search(r"\+[67]\.\d %, slower", tip) for _, _, tip in row[:2])
    text = words(table)
    assert json.dumps("✕ 1 failed ") in text
    assert json.dumps("▼ 2 up to +7.")[1:-1] in text
    # The speedup is that of the best variants, the failed shape has none.
    assert '"1.40"' in text
    assert "data:image/svg+xml" in text


def test_the_family_that_lost_most_comes_first(tmp_path):
    commits = commits_of(tmp_path / "repo", 30)
    root = tmp_path / "repo" / "results"
    write_foreign(root, "runner", commits, lambda n: 1.4e-3 if n >= 15 else 1e-3)
    sorting, arrays = "sorting.TimeSort.time_sort", "arrays.TimeArrays.time_sort"

    def scaled(part, factor):
        return part * factor if isinstance(part, float) else [scaled(one, factor) for one in part]

    for number, commit in enumerate(commits):
        [path] = (root / "runner").glob(f"{commit[:8]}-*.json")
        file = json.loads(path.read_text())
        row = dict(zip(file["result_columns"], file["results"][sorting], strict=False))
        numbers = [name for name in row if name in ("result", "samples") or name.startswith(("stats_ci", "stats_q"))]
        row |= {name: scaled(row[name], 1.1 / 1.4 if number >= 15 else 1.0) for name in numbers}
        file["results"][arrays] = list(row.values())
        path.write_text(json.dumps(file))
    table = json.loads((root / "benchmarks.json").read_text())
    (root / "benchmarks.json").write_text(json.dumps(table | {arrays: table[sorting] | {"name": arrays}}))
    store = open_store(root, repo=tmp_path / "repo", cache=tmp_path / "cache")
    here = store, analysed(store, tmp_path / "repo")
    assert list(cells(families(store.current(), in_order(stand(here, "runner"))))) == [sorting, arrays]


def test_a_series_that_ends_does_not_move_the_trend_of_a_family():
    def trend(commits, values):
        points = np.array(commits), np.array(values, dtype=float), np.zeros(len(commits))
        return SimpleNamespace(**dict(zip(("commit", "value", "version"), points, strict=True)))

    assert chained([]) == {}
    together = list(chained([trend([0, 1, 2, 3], [8, 8, 4, 4]), trend([0, 1], [1, 1])]).values())
    assert together == pytest.approx([1, 1, 0.5, 0.5])


def test_a_quantity_is_chosen_and_another_machine_without_it_shows_its_first(shown):
    results = shown[0].current()
    rows = {quantity: measured_rows(results, "laptop", "all", quantity) for quantity in ("time", "other", "host")}
    assert {key.suite for key in rows["time"].keys} == {"io.Load.time_load"}
    assert {key.suite for key in rows["other"].keys} == {"io.Load.peakmem_load", "index.track_depth"}
    assert len(rows["host"]) == len(rows["time"])
    assert [column["hide"] for column in columns(rows["time"]) if column["field"] in ("value", "unit", "speedup")] == [
        True,
        True,
        True,
    ]


def test_another_projects_units_need_no_configuration(shown):
    rows = {(row["family"], row["case"]): row for row in table_of(shown[0].current(), "laptop", stand(shown, "laptop"))}
    assert rows["io.Load.peakmem_load", "rows=10"]["value"] == pytest.approx(50)
    assert rows["io.Load.peakmem_load", "rows=10"]["unit"] == "MB"
    assert rows["index.track_depth", ""]["value"] == COMMITS // 20 - 1
    assert rows["io.Load.time_load", "path=b,c.csv,rows=1000"]["latency"] == pytest.approx(0.5e6)
    assert len(rows) == 7


def test_it_begins_with_a_cache_state_that_has_numbers(tmp_path):
    # A CPU measures nothing cold: the page was empty for whoever tried it there.
    records = [record(l2="warm"), record(l2="cold", state="na", latency=None, speedup=None)]
    write_measurement(tmp_path / "results", records)
    text = words(overview.layout(open_store(tmp_path / "results").current(), OverviewAddress()))
    assert '"value": "warm"' in text
    assert '"value": "cold"' not in text


def test_another_machine_offers_the_cache_states_that_it_measured(tmp_path):
    # "Warm" on a machine that measures cold alone had said "No series match."
    write_measurement(tmp_path / "results", [record(l2="cold"), record(l2="warm")])
    write_measurement(tmp_path / "results", [record(l2="cold")], machine="other")
    client = create_app(open_store(tmp_path / "results")).server.test_client()
    answer = call(client, "overview-since.data", ["other", "warm", "time"]).json["response"]
    assert answer["overview-l2"] == {"data": ["cold"], "value": "cold"}


def test_the_address_restores_the_choices(shown):
    address = OverviewAddress(FREE, "all", "7d", "time", "M=8 triton")
    path, _, search = address.link().partition("?")
    assert path == "/"
    assert parse("/", f"?{search}") == address
    text = words(overview.layout(shown[0].current(), address))
    for value in (FREE, "7d", "time", "M=8 triton"):
        assert f'"value": "{value}"' in text
    wrong = parse("/", "?machine=%3Cb%3E&quantity=beauty&l2=%00")
    assert json.loads(words(overview.layout(shown[0].current(), wrong)))


def test_what_fails_since_then_stands_first_and_what_failed_already_below_what_changed(shown):
    """The largest shape fails at the newest commit alone; the others became slower long before it."""
    results = shown[0].current()
    stood = stand(shown)
    assert [one.news for one in each(stood) if one.verdict == "failed"] == [True]
    rows = table_of(results, FAST, stood)
    assert [row["verdict"] for row in rows[:3]] == ["failed", "slower", "slower"]
    assert not any(one.news for one in each(stand(shown, since=results.commits(FAST)[-1].hash)))
    rows = table_of(results, FAST, replace(stood, news=np.zeros(len(stood), dtype=bool)))
    assert [row["verdict"] for row in rows[:3]] == ["slower", "slower", "failed"]


def test_seven_days_are_no_beginning_of_a_hash(tmp_path):
    hashes = ["a" * 40, "7d" * 20, "b" * 40]
    for number, commit in enumerate(hashes):
        write_measurement(
            tmp_path / "results", [record()], commit=commit, date=DATE + number * 10 * 86_400_000, proof=False
        )
    results = open_store(tmp_path / "results").current()
    assert reference(results, MACHINE, "7d").hash == hashes[1]
    assert reference(results, MACHINE, "7d7d").hash == hashes[1]
    write_measurement(tmp_path / "results", [record()], commit="c" * 40, date=DATE + 10 * 86_400_000 + 1, proof=False)
    write_measurement(tmp_path / "results", [record()], commit="d" * 40, date=DATE + 22 * 86_400_000, proof=False)
    results = open_store(tmp_path / "results").current()
    assert reference(results, MACHINE, "7d").hash == "c" * 40
