"""Work grows with what a page shows: counted at two sizes, so that no machine's speed decides."""

import gc
import sys
import tracemalloc

import pytest
from bench.make_tree import write_many
from served import call, cells, table_of, words
from trees import open_store

from dashboard.address import FamilyAddress
from dashboard.pages import commit, family, family_trends, overview
from dashboard.pages.machine_health import health_of
from dashboard.pages.overview_families import MOST_SUITES, families
from dashboard.pages.overview_table import MOST_ROWS
from dashboard.server.app import create_app
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.compare.at_commit import compare_commit
from lockstep.compare.read_rows import newest_rows
from lockstep.compare.series_of_suite import keys_of, suites
from lockstep.compare.two_sides import Side, compare
from lockstep.history.model import Series, SeriesKey
from lockstep.history.reader import Reader
from lockstep.suite.thresholds import Thresholds

#: Benchmarks of the smaller tree and of the larger one.
FEW, MANY = 1500, 6000

#: The larger tree takes four times the work where it is linear, and sixteen times where it is quadratic.
LINEAR = 5

#: Bytes that a process may hold for a series of two commits, once all pages were seen.
BYTES_A_SERIES = 3000


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Stores of two projects that differ in the number of their benchmarks alone."""
    found = {}
    for benchmarks in (FEW, MANY):
        root = tmp_path_factory.mktemp("trees") / str(benchmarks)
        write_many(root, benchmarks, commits=2)
        found[benchmarks] = open_store(root, patience=60.0)
        found[benchmarks].refresh()
    return found


def events(do):
    """Return how many functions are called and left while a call runs: the same number on any machine, busy or not."""
    count = 0

    def note(*_):
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def test_the_overviews_work_is_linear_in_its_series(trees):
    def fill(root):
        # A store of its own: nothing that another test has asked for is remembered.
        store = open_store(root, patience=60.0)
        results = store.current()
        stood = overview.statuses_of(results, "machine-0", "all", 0, Findings(store.cache, store.root))
        table_of(results, "machine-0", stood)

    for of in (FEW, MANY):
        fill(trees[of].root)  # what is imported, built or cached once
    few, many = (events(lambda of=of: fill(trees[of].root)) for of in (FEW, MANY))
    assert many < LINEAR * few


def held(do):
    """Return the bytes that Python holds after a call and did not hold before."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = do()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], kept
    finally:
        tracemalloc.stop()


def test_a_worker_holds_few_bytes_a_series(trees):
    """Everything that the overview, Compare and Machines remember of a picture, per series that it has more."""

    def show(store):
        again = open_store(store.root, patience=60.0)
        client = create_app(again).server.test_client()
        first, last = (one.hash for one in again.current().commits("machine-0"))
        call(client, "page.children", ["/"], ("",))
        call(client, "overview-cards.children", ("machine-0", "all", "all", "time", 0, None))
        results = again.current()
        compare(results, Side("machine-0", first), Side("machine-0", last), "latency", Thresholds())
        health_of(results, "machine-0")
        return again, client

    (few, _), (many, _) = (held(lambda of=of: show(trees[of])) for of in (FEW, MANY))
    assert (many - few) / (MANY - FEW) < BYTES_A_SERIES


def ask(client, output, inputs, state=()):
    """Return what a callback answers, and the bytes of the answer."""
    answer = call(client, output, inputs, state)
    assert answer.status_code == 200, answer.text
    return answer.json["response"], len(answer.data)


def test_long_tables_are_sent_in_part(trees):
    """What a page of 1,500 series sends and what a page of 6,000 sends differ by less than a tenth."""
    sizes = []
    for store in trees.values():
        client = create_app(store).server.test_client()
        at = {"commit": store.current().commits("machine-0")[0].hash, "machine": "machine-0"}
        layout = call(client, "page.children", ["/"], ("",))
        chosen = ("machine-0", "all", "all", "time")
        _, size = ask(client, "overview-cards.children", (*chosen, 0, None))
        told, rows = ask(client, "overview-grid.rowData", (*chosen, "", 0, None))
        assert len(told["overview-grid"]["rowData"]) == MOST_ROWS
        assert f"The first {MOST_ROWS} of " in told["overview-more"]["children"]
        found, _ = ask(client, "overview-grid.rowData", (*chosen, "Module_1 time_13", 0, None))
        assert 0 < len(found["overview-grid"]["rowData"]) < MOST_ROWS
        assert found["overview-more"]["children"] == ""
        _, cards = ask(client, "commit-families.children", [at, None])
        _, at_commit = ask(client, "commit-series.children", (at, "", None))
        sizes.append([len(layout.data), size, rows, cards, at_commit])
    assert sizes[1] == pytest.approx(sizes[0], rel=0.1)


def test_the_table_of_families_has_a_limit(trees):
    results = trees[FEW].current()
    stood = overview.statuses_of(results, "machine-0", "all", 0, Findings(trees[FEW].cache, trees[FEW].root))
    assert len({key.suite for key in stood.rows.keys}) == FEW
    assert len(cells(families(results, stood))) == MOST_SUITES
    found = compare_commit(results, "machine-0", results.commits("machine-0")[1].hash, None, Thresholds())
    listed, more = commit.families(*found)
    assert len(listed.children.children[2].children) == commit.MOST_FAMILIES
    assert "more families" in more.children


def test_a_machine_that_is_gone_has_nothing_to_show(trees):
    """A browser may still ask for a machine whose results were deleted."""
    store = trees[FEW]
    client = create_app(store).server.test_client()
    chosen = "gone", "all", "all", "time"
    ask(client, "overview-cards.children", (*chosen, 0, None))
    assert ask(client, "overview-grid.rowData", (*chosen, "", 0, None))[0]["overview-grid"]["rowData"] == []
    at = {"commit": store.current().commits("machine-0")[0].hash, "machine": "gone"}
    assert "No series match." in words(ask(client, "commit-series.children", [at, "", None])[0])
    results, suite = store.current(), min(suites(store.current()))
    address = FamilyAddress("gone", suite, ("",), "", ("latency",), ("",))
    assert family_trends.trends(results, address, "light") == []
    assert "Nothing to show" in words(family.latest(results, address, "light"))


def test_newest_rows_are_read_from_the_newest_commit_where_it_has_all(trees, monkeypatch):
    asked = []
    ask = Reader._ask
    monkeypatch.setattr(Reader, "_ask", lambda self, sql, given: asked.append(sql) or ask(self, sql, given))
    results = open_store(trees[FEW].root, patience=60.0).current()
    assert len(newest_rows(results, "machine-0")) == FEW
    assert len(asked) == 1


def test_the_trends_of_all_families_are_read_at_once(trees, monkeypatch):
    """With a query a family, the overview of 20 families took 1.2 s of 1.4 for their trends."""
    results = trees[FEW].current()
    stood = overview.statuses_of(results, "machine-0", "all", 0, Findings(trees[FEW].cache, trees[FEW].root))
    asked = []
    ask = Reader._ask
    monkeypatch.setattr(Reader, "_ask", lambda self, sql, given: asked.append(sql) or ask(self, sql, given))
    assert len(cells(families(results, stood))) == MOST_SUITES
    assert len(asked) == 1


def test_the_keys_of_a_suite_are_looked_up(trees):
    results = trees[FEW].current()
    assert suites(results) is suites(results)
    assert len(suites(results)) == FEW
    name = min(results.benchmarks)
    assert keys_of(results, name, "machine-0") == [SeriesKey("machine-0", name)]
    assert keys_of(results, "unknown") == []
    index = results.keys("machine-0")
    assert index.of_suite is index.of_suite
    assert index.series_of([SeriesKey("machine-0", name)]) == [Series("machine-0", name)]
    assert index.series_of([SeriesKey("machine-0", "unknown")]) == []
