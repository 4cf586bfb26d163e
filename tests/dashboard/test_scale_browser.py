"""A table of which the browser gets the first rows: searched, sorted, saved, opened."""

import pytest
from bench.make_tree import write_many
from served import serving
from test_dashboard_browser import becomes, visit
from trees import open_store

from dashboard.address import CommitAddress, OverviewAddress
from dashboard.pages.commit import MOST_SERIES
from dashboard.pages.overview_table import MOST_ROWS
from dashboard.server.app import create_app

__all__ = ["visit"]

MANY = 1200
GRID, COUNT = "overview-grid", "api.getDisplayedRowCount()"
ROWS = ".grid .ag-center-cols-container .ag-row"


def until(page, grid, expression, wanted):
    """Wait until an expression of a grid's ``api`` has the wanted value."""
    for _ in range(200):
        found = page.evaluate(f"dash_ag_grid.getApiAsync('{grid}').then((api) => {expression})")
        if found == wanted:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{expression} of {grid} is {found}, not {wanted}")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("many") / "results"
    write_many(root, MANY, commits=3)
    store = open_store(root)
    with serving(create_app(store)) as address:
        yield address, store.current().commits("machine-0")[-1].hash


@pytest.fixture
def serve(site):
    """Keep the server for as long as ``visit`` keeps its pages."""
    return site


def test_a_long_table_is_searched_filtered_sorted_and_saved(visit, site):
    page = visit(site[0] + OverviewAddress("machine-0", since="all").link())
    page.locator(ROWS).first.wait_for()
    until(page, GRID, COUNT, MOST_ROWS)
    page.get_by_text(f"The first {MOST_ROWS} of ").wait_for()
    page.get_by_label("Search").fill("time_117")
    until(page, GRID, COUNT, 11)
    becomes(page, ROWS, 11)
    with page.expect_download() as download:
        page.locator("#overview-csv").click()
    assert len(download.value.path().read_text().splitlines()) == 12
    page.get_by_label("Search").fill("module_3")
    until(page, GRID, COUNT, 100)
    page.locator(".ag-header-cell[col-id=latency]").click()
    ordered = "(([a, b, c]) => a < b && b < c)([0, 1, 2].map((at) => api.getDisplayedRowAtIndex(at)?.data?.latency))"
    until(page, GRID, ordered, True)
    page.locator(f"{ROWS} .ag-cell[col-id=latency]").first.click()
    page.wait_for_url("**/series/**")


def test_a_commits_long_table_is_searched(visit, site):
    page = visit(site[0] + CommitAddress(site[1], "machine-0").link())
    page.get_by_text(f"The first {MOST_SERIES} of ").wait_for()
    page.get_by_label("Search").fill("time_7 nonsense")
    page.get_by_text("No series match.").wait_for()
    page.get_by_label("Search").fill("time_77")
    becomes(page, "#commit-series tbody tr", 11)
