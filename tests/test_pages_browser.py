"""The pages of the showcase in a real browser: quiet, fitting, and alive."""

import threading

import pytest
from showcase import FAST, write_showcase
from test_dashboard_browser import SIZES, becomes, fits, visit
from trees import analysed, open_store
from werkzeug.serving import make_server

from dashboard.address import CommitAddress, OverviewAddress, SeriesAddress
from dashboard.app import create_app
from dashboard.server import warm

__all__ = ["visit"]

ONE = SeriesAddress(FAST, "linear", "triton", "M=8,K=64", "cold")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One server of the showcase for all tests; it outlives their pages."""
    results, repo = write_showcase(tmp_path_factory.mktemp("site"))
    store = open_store(results, repo=repo)
    app = create_app(store, findings=analysed(store, repo))
    warm(app)
    server = make_server("127.0.0.1", 0, app.server, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.port}", store.current().commits(FAST)
    server.shutdown()


@pytest.fixture
def serve(site):
    """``visit`` closes its pages before the server of ``serve`` ends; this one ends later still."""
    return site


def test_a_card_narrows_the_table_and_widens_it_again(visit, site):
    page = visit(site[0] + OverviewAddress(FAST, "cold", "all").link())
    becomes(page, ".grid .ag-center-cols-container .ag-row", 6)
    page.locator("[data-filter=slower]").click()
    becomes(page, ".grid .ag-center-cols-container .ag-row", 2)
    page.locator("[data-filter=slower]").click()
    becomes(page, ".grid .ag-center-cols-container .ag-row", 6)
    with page.expect_download() as download:
        page.locator("#overview-csv").click()
    assert download.value.path().read_text().count("\n") == 7


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "dark"), ("phone", "light")])
def test_a_series_page_fits_and_restores_its_zoom(visit, site, size, scheme):
    assert size in SIZES
    address = SeriesAddress(**{**vars(ONE), "quantity": "latency", "zoom": (30.0, 50.0)})
    page = visit(site[0] + address.link(), size, scheme)
    page.locator("#series-chart .annotation-text", has_text="own commit").wait_for()
    assert page.locator("#series-chart .js-plotly-plot").evaluate("plot => plot.layout.xaxis.range") == [30, 50]
    assert page.locator("#series-table tbody tr").count() == 60
    assert fits(page)
    assert "zoom=30" in page.url


def test_keys_walk_the_table_and_tell_of_themselves(visit, site):
    page = visit(site[0] + OverviewAddress(FAST, "cold", "all").link())
    becomes(page, ".grid .ag-center-cols-container .ag-row", 6)
    page.keyboard.press("?")
    page.get_by_text("next and previous row").wait_for()
    page.keyboard.press("?")
    page.keyboard.press("j")
    page.keyboard.press("j")
    becomes(page, ".ag-row[row-index='1'] .ag-cell-focus", 1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/series/**")
    page.locator("#series-table tbody tr").first.wait_for()


def test_a_commit_page_leads_to_its_series(visit, site):
    root, commits = site
    page = visit(root + CommitAddress(commits[40].hash, FAST).link())
    page.locator(".ag-row", has_text="slower").first.locator("[col-id=variant]").click()
    page.wait_for_url("**/series/**")
    page.locator("#series-table tbody tr").first.wait_for()
    assert page.title() == "linear triton · Lockstep"
