"""Lists of alerts: each page holds what it should, and costs the same however many alerts there are."""

import datetime
import math
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from alerting import COMMITS, alerts, series, step
from sqlalchemy import event
from sqlalchemy.engine import Engine
from trees import open_store

from dashboard.server.app import create_app
from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.listing import Choice
from lockstep.alerts.database.states_and_actions import OPEN, Act
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import AnalysisResult
from lockstep.alerts.pages_service import AlertService
from lockstep.notify.feed import MOST_ENTRIES

FAMILIES = ("linear", "kda", "100%_done")

#: Alerts of the store that all tests read.
MANY = 300


def hash_of(number):
    return f"{number:04x}" * 10


def several(count, first=0):
    """Return so many alerts of one machine, each of another commit and size, the later the smaller."""
    found = []
    for number in range(first, first + count):
        [one] = alerts(
            step(10, by=0.01 + 0.9 / (number + 2), name=series(family=FAMILIES[number % 3], case=f"M={number}"))
        )
        members = (replace(one.members[0], reported_at=hash_of(number)),)
        owner = "Mira" if number % 2 else ""
        changed = {
            "before": hash_of(number),
            "commits": (hash_of(number + 1),),
            "members": members,
            "since": number + 1,
        }
        found.append(replace(one, **changed, owner=owner))
    return found


def opened(path, count):
    """Return a store of so many alerts."""
    store = AlertStore(Database(path))
    store.sync(AnalysisResult(several(count), {"h200": COMMITS}))
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return opened(tmp_path_factory.mktemp("many") / "alerts.sqlite", MANY)


@pytest.fixture(scope="module")
def client(store, tmp_path_factory):
    results = open_store(tmp_path_factory.mktemp("none") / "results")
    return create_app(results, AlertService(store)).server.test_client()


@pytest.mark.parametrize("order", ["urgent", "newest", "largest", "family"])
def test_a_list_holds_every_alert_once_and_a_page_its_beginning(store, order):
    found = store.page(Choice(), order).alerts
    assert len(found) == MANY
    assert {one.id for one in found} == {one.id for one in store.alerts()}
    assert store.page(Choice(), order, 70).alerts == found[:70]


def test_lists_are_sorted_over_all_alerts(store):
    largest = [one.alert.members[0].size for one in store.page(Choice(), "largest").alerts]
    assert largest == sorted(largest, reverse=True)
    newest = [one.alert.since or math.inf for one in store.page(Choice(), "newest").alerts]
    assert newest == sorted(newest, reverse=True)
    families = [one.alert.family for one in store.page(Choice(), "family").alerts]
    assert families == sorted(families)


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (Choice(family="kda"), lambda one: one.alert.family == "kda"),
        (Choice(owner="Mira"), lambda one: one.alert.owner == "Mira"),
        (Choice(OPEN, machine="h200"), lambda one: one.open),
        (Choice(frozenset({"muted"})), lambda one: one.state == "muted"),
        (
            Choice(search="M=17 KDA"),
            lambda one: "M=17" in one.alert.members[0].series.case and one.alert.family == "kda",
        ),
        (Choice(search="100%_d"), lambda one: one.alert.family == "100%_done"),
        (Choice(search="00%__"), lambda one: False),
        (Choice(search=hash_of(9)[:8]), lambda one: hash_of(9) == one.alert.after),
    ],
)
def test_a_choice_is_made_among_all_alerts(store, choice, wanted):
    found = store.page(choice, "urgent").alerts
    assert {one.id for one in found} == {one.id for one in store.alerts() if wanted(one)}
    assert store.count(choice) == (len(found), sum(one.alert.topic == "slower" for one in found))


def test_acknowledged_alerts_stand_below_new_ones(tmp_path):
    store = opened(tmp_path / "alerts.sqlite", 6)
    before = store.version()
    store.act(6, Act("ack", "Mira"))
    assert store.version() > before
    assert [one.id for one in store.page(Choice(), "urgent").alerts] == [1, 2, 3, 4, 5, 6]
    open_ones = store.open_on("h200", 2)
    assert [one.id for one in open_ones.first] == [1, 2]
    assert dict(open_ones.states) == {"new": 5, "acknowledged": 1}
    assert dict(store.open_on("other", 2).elsewhere) == {"h200": 6}
    assert (open_ones.muted, store.open_on("other", 2).muted) == (0, 0)
    store.act(2, Act("mute", "ada", "known", until=datetime.date(2999, 1, 1)))
    assert (store.open_on("h200", 2).total, store.open_on("h200", 2).muted) == (5, 1)


def test_doubted_alerts_are_counted_apart_and_are_no_news(tmp_path):
    doubted, certain = several(2)
    machine = tuple(replace(member, cause=Cause("machine", "")) for member in doubted.members)
    store = AlertStore(Database(tmp_path / "alerts.sqlite"))
    store.sync(AnalysisResult([replace(doubted, members=machine), certain], {"h200": COMMITS}))
    page = store.page(Choice())
    assert [one.id for one in page.alerts] == [2, 1]
    assert (page.total, page.slower, page.doubted) == (2, 1, 1)
    here, there = store.open_on("h200", 5), store.open_on("other", 5)
    assert ([one.id for one in here.first], here.total, dict(there.elsewhere), there.gravest.id) == (
        [2],
        1,
        {"h200": 1},
        2,
    )
    assert [one.id for one in store.quiet_on("h200", 5)] == [1]
    store.act(1, Act("mute", "ada", "known", until=datetime.date(2999, 1, 1)))
    store.act(2, Act("mute", "ada", "known", until=datetime.date(2999, 1, 1)))
    assert store.open_on("h200", 5).muted == 2
    assert [one.id for one in store.quiet_on("h200", 5)] == [2, 1]


def test_the_version_stays_while_nothing_changes(tmp_path):
    store = opened(tmp_path / "alerts.sqlite", 6)
    before = store.version()
    store.sync(AnalysisResult(several(6), {"h200": COMMITS}))
    assert store.version() == before
    store.sync(AnalysisResult([replace(one, owner="Ada") for one in several(6)], {"h200": COMMITS}))
    assert store.version() > before
    assert store.count(Choice(owner="Ada")) == (6, 6)


def rows_read(do):
    """Return how many statements a call sends, and how many contents of alerts it decodes."""
    statements, decoded = [], []

    def sent(connection, cursor, statement, *_):
        statements.append(statement)

    def profile(frame, what, _):
        if what == "call" and frame.f_code.co_name == "from_json":
            decoded.append(1)

    event.listen(Engine, "before_cursor_execute", sent)
    sys.setprofile(profile)
    try:
        do()
    finally:
        sys.setprofile(None)
        event.remove(Engine, "before_cursor_execute", sent)
    return len(statements), len(decoded)


def test_a_page_reads_no_more_alerts_than_it_shows(store):
    statements, decoded = rows_read(lambda: store.page(Choice(OPEN), "largest", 50))
    assert decoded == 50
    assert statements <= 5
    assert rows_read(lambda: store.open_on("h200", 5))[1] == 5
    for question in (store.version, store.names, store.counts, lambda: store.count(Choice(OPEN))):
        assert rows_read(question)[1] == 0


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_counts_read_no_alert(client, path):
    assert rows_read(lambda: client.get(path))[1] == 0


def test_the_list_is_chosen_from_an_index_alone(store):
    with store.database.read() as connection:
        for query in (
            "SELECT count(*), count(CASE WHEN topic = 'slower' THEN 1 END) FROM alert WHERE state IN ('new', 'muted')",
            "SELECT id FROM alert WHERE state = 'new' AND machine = 'h200' ORDER BY size DESC, since LIMIT 9",
            "SELECT DISTINCT owner FROM alert ORDER BY owner",
        ):
            plan = " ".join(row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}"))
            assert "COVERING INDEX" in plan, (query, plan)


def test_the_api_pages_all_alerts(client, store):
    path, found = "/api/v1/alerts?limit=70&state=new", []
    while path:
        answer = client.get(path)
        assert len(answer.json) <= 70
        found += [one["id"] for one in answer.json]
        link = answer.headers.get("Link", "")
        path = link.partition("<")[2].partition(">")[0]
        assert link == "" or link.endswith('; rel="next"')
    assert found == [one.id for one in store.alerts(["new"])]
    assert len(client.get("/api/v1/alerts").json) == 100
    assert rows_read(lambda: client.get("/api/v1/alerts?limit=5"))[1] <= 6


def test_a_large_limit_is_answered_in_parts_that_cost_little(client, store, monkeypatch):
    monkeypatch.setattr("dashboard.api.schema.MOST_ALERTS", 20)
    answer = client.get("/api/v1/alerts?limit=10000")
    assert len(answer.json) == 20
    assert answer.headers["Link"].startswith("</api/v1/alerts?limit=10000&cursor=")


@pytest.mark.parametrize("query", ["limit=0", "limit=1000000", "limit=x", "limit=-1", "cursor=x", "limit=%C2%B2"])
def test_a_wrong_limit_is_refused(client, query):
    answer = client.get(f"/api/v1/alerts?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json["error"]


def test_the_feed_holds_what_changed_last(client, store):
    feed = ElementTree.fromstring(client.get("/feed.atom").data)
    assert len(feed.findall("{http://www.w3.org/2005/Atom}entry")) == MOST_ENTRIES < MANY
    assert rows_read(lambda: client.get("/feed.atom"))[1] == MOST_ENTRIES


def calls(do):
    """Return the number of calls that a call makes, of Python's and of C's functions."""
    counted = [0]

    def profile(_frame, what, _):
        counted[0] += what in ("call", "c_call")

    sys.setprofile(profile)
    try:
        do()
    finally:
        sys.setprofile(None)
    return counted[0]


def test_alerts_are_opened_together(tmp_path):
    counts = [rows_read(lambda count=count: opened(tmp_path / f"{count}.sqlite", count))[0] for count in (5, 50)]
    assert counts[0] == counts[1]


def test_a_new_alert_is_not_compared_with_every_old_one(tmp_path):
    added = []
    for count in (100, 400):
        store = opened(tmp_path / f"{count}.sqlite", count)
        again = calls(lambda store=store, count=count: store.sync(AnalysisResult(several(count), {"h200": COMMITS})))
        found = [*several(count), *several(50, first=count)]
        added.append(
            calls(lambda store=store, found=found: store.sync(AnalysisResult(found, {"h200": COMMITS}))) - again
        )
    assert added[1] < 1.1 * added[0]
