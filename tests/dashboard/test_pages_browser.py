"""The pages of the showcase in a real browser: quiet, fitting, and alive."""

import csv
import io
import re
from contextlib import suppress

import pytest
from playwright.sync_api import Error, expect
from served import serving
from showcase import FAST, FREE, write_showcase
from test_dashboard_browser import background, becomes, fits, visit
from trees import analysed, open_store, record, write_measurement

from dashboard.address import CommitAddress, FamilyAddress, OverviewAddress, SeriesAddress
from dashboard.server.app import create_app

__all__ = ["visit"]

ONE = SeriesAddress(FAST, "linear", "triton", "M=8,K=64", "cold")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One server of the showcase for all tests; it outlives their pages."""
    results, repo = write_showcase(tmp_path_factory.mktemp("site"))
    store = open_store(results, repo=repo)
    with serving(create_app(store, findings=analysed(store, repo))) as address:
        yield address, store.current().commits(FAST)


@pytest.fixture
def serve(site):
    """``visit`` closes its pages before the server of ``serve`` ends; this one ends later still."""
    return site


def test_a_verdict_narrows_the_table_which_is_saved_linked_and_walked_by_keys(visit, site):
    page = visit(site[0] + OverviewAddress(FAST, "cold", "all").link())
    becomes(page, ".grid .ag-center-cols-container .ag-row", 6)
    page.get_by_label("Search").fill("slower")
    becomes(page, ".grid .ag-center-cols-container .ag-row", 2)
    page.get_by_label("Search").fill("nothing like it")
    # In the grid alone: the text is also read out, in an element beside it.
    page.get_by_role("grid").get_by_text("No series match.").wait_for()
    page.get_by_label("Search").fill("")
    becomes(page, ".grid .ag-center-cols-container .ag-row", 6)
    with page.expect_download() as download:
        page.locator("#overview-csv").click()
    assert download.value.suggested_filename == f"lockstep {FAST}.csv"
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text("utf-8-sig"))))
    assert len(rows) == 6
    assert all(float(row["Latency µs low"]) <= float(row["Latency µs"]) for row in rows if row["Latency µs low"])
    # As Dash's own links are: a handler of the document's root changes the address only.
    other = OverviewAddress(FAST, "cold", "all", search="triton").link()
    page.evaluate(
        """href => {
            const link = Object.assign(document.createElement("a"), { href, id: "other", textContent: "other" });
            link.addEventListener("click", (event) => { event.preventDefault(); history.pushState({}, "", href); });
            document.querySelector("#page").prepend(link);
        }""",
        other,
    )
    with page.expect_navigation(wait_until="load"):
        page.locator("#other").click()
    page.locator("#overview-search").wait_for()
    assert page.locator("#overview-search").input_value() == "triton"
    becomes(page, ".grid .ag-center-cols-container .ag-row", 3)
    page.keyboard.press("?")
    page.get_by_text("next and previous row").wait_for()
    page.keyboard.press("?")
    page.keyboard.press("j")
    page.keyboard.press("j")
    becomes(page, ".ag-row[row-index='1'] .ag-cell-focus", 1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/series/**")
    page.locator("#series-table tbody tr").first.wait_for()


def test_a_name_that_a_spreadsheet_would_compute_stays_text(visit, serve, tmp_path):
    write_measurement(tmp_path / "results", [record(variant="=1+1")])
    with serving(create_app(open_store(tmp_path / "results"))) as site:
        page = visit(site)
        page.locator(".grid .ag-row").first.wait_for()
        with page.expect_download() as download:
            page.locator("#overview-csv").click()
        [row] = csv.DictReader(io.StringIO(download.value.path().read_text("utf-8-sig")))
        assert row["Variant"] == "'=1+1"
        page.goto("about:blank")


def test_the_controls_of_every_page_fold_on_a_phone(visit, site):
    page = visit(site[0] + ONE.link(), "phone")
    for address, control in ((ONE.link(), "by date"), ("/", "Search"), ("/compare", "Head")):
        page.goto(site[0] + address)
        summary = page.locator(".filters-fold summary")
        summary.wait_for()
        inside = page.locator(".filters-fold").get_by_text(control, exact=True)
        expect(inside).to_be_hidden()
        summary.tap()
        expect(inside).to_be_visible()


@pytest.mark.parametrize(
    ("size", "scheme"), [pytest.param("desktop", "dark", marks=pytest.mark.thorough), ("phone", "light")]
)
def test_a_series_page_fits_and_restores_its_zoom(visit, site, size, scheme):
    address = SeriesAddress(**{**vars(ONE), "quantity": "latency", "zoom": "30,50"})
    page = visit(site[0] + address.link(), size, scheme)
    page.locator("#series-chart .textpoint", has_text="▼ +").wait_for()
    assert page.locator("#series-chart .js-plotly-plot").evaluate("plot => plot.layout.xaxis.range") == [30, 50]
    assert page.locator("#series-table tbody tr").count() == 21
    assert fits(page)
    assert "zoom=30" in page.url
    page.locator(".reproduce summary").focus()
    page.keyboard.press("Enter")
    commands = page.locator(".reproduce pre").first
    commands.wait_for()
    assert f"lockstep run '{site[1][50].hash[:12]}^!'" in commands.inner_text()
    assert fits(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".reproduce .copy").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == commands.inner_text()


def drag(page, plot, start, end):
    """Choose a part of a chart's width, as shares of it."""
    box = page.locator(plot).locator(".nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=4)
    page.mouse.up()


def test_a_trend_that_is_zoomed_zooms_all_and_its_address_tells(visit, site):
    address = FamilyAddress(FAST, "linear", ("M=1,K=64", "M=8,K=64"), "cold", ("speedup",), ("triton",))
    page = visit(site[0] + address.link())
    plots = "#family-trend .js-plotly-plot"
    becomes(page, f"{plots} .scatterlayer .points path.point", 120)
    drag(page, f"{plots} >> nth=0", 0.75, 0.95)
    page.wait_for_url("**zoom=**")
    becomes(page, f"{plots} .xtick", 8)
    zoomed = page.locator(plots).evaluate_all("all => all.map(one => [one.layout.xaxis.range, one.layout.yaxis.range])")
    assert zoomed[0][0] == zoomed[1][0]
    assert 40 < zoomed[0][0][0] < zoomed[0][0][1] < 60
    # Only the level after the step is in view, and the chart is as high as that.
    assert zoomed[0][1][1] < 1.5
    again = visit(page.url)
    again.locator(f"{plots} .points path").first.wait_for()
    restored = again.locator(plots).evaluate_all(
        "all => all.map(one => [one.layout.xaxis.range, one.layout.yaxis.range])"
    )
    assert restored == zoomed
    for _ in range(5):  # on a busy machine the two clicks come too far apart to be one double click
        again.locator(f"{plots} .nsewdrag").first.dblclick()
        with suppress(Error):
            again.wait_for_url(lambda url: "zoom" not in url, timeout=4000)
            break
    assert "zoom" not in again.url


def test_another_machine_of_a_family_has_its_own_page_with_the_choices_and_without_the_zoom(visit, site):
    address = FamilyAddress(FAST, "linear", ("M=8,K=64",), "cold", ("speedup",), ("triton",), "10,20")
    page = visit(site[0] + address.link().replace("?", "/?"))  # as people type it
    page.locator("#family-trend .js-plotly-plot .points path").first.wait_for()
    page.locator("#family-machine").click()
    page.get_by_role("option", name=FREE).click()
    page.wait_for_url(f"{site[0]}/family/{FREE}/**")
    page.get_by_role("heading", name="Over the commits").wait_for()
    assert "zoom" not in page.url
    becomes(page, "#family-trend .card", 1)
    assert page.locator("#family-machine").input_value() == FREE
    page.go_back()
    page.wait_for_url(f"{site[0]}/family/{FAST}/**")
    becomes(page, "#family-trend .card", 1)


@pytest.mark.parametrize("kind", ["family", pytest.param("series", marks=pytest.mark.thorough)])
def test_commits_by_date_are_in_the_address_a_zoom_of_the_other_axis_ends_and_the_chart_is_saved(visit, site, kind):
    address = {
        "family": FamilyAddress(FAST, "linear", ("M=8,K=64",), "cold", ("speedup",), ("triton",), zoom="10,20"),
        "series": SeriesAddress(FAST, "linear", "triton", "M=8,K=64", "cold", zoom="10,20"),
    }[kind]
    page = visit(site[0] + address.link())
    page.locator(".js-plotly-plot .points path").first.wait_for()
    page.get_by_text("by date").click()
    page.wait_for_url(lambda url: "axis=date" in url and "zoom" not in url)
    page.locator(".js-plotly-plot .xtick", has_text=re.compile(r"^\d{4}-\d\d-\d\d$")).first.wait_for()
    if kind == "family":
        page.reload()
        page.locator(".js-plotly-plot .xtick", has_text=re.compile(r"^\d{4}-")).first.wait_for()
    page.get_by_text("in order").click()
    page.wait_for_url(lambda url: "axis" not in url)
    if kind == "family":
        back_takes_a_choice_back(page)
        is_saved_with_what_it_shows(page.locator("#family-trend .graph"), site[1][0].short)


def back_takes_a_choice_back(page):
    page.wait_for_timeout(1100)  # choices of one second are one step
    page.get_by_text("by date").click()
    page.wait_for_url("**axis=date**")
    with page.expect_navigation(wait_until="load"):
        page.go_back()
    page.locator("#family-trend .points path").first.wait_for()
    assert "axis" not in page.url
    assert page.get_by_role("radio", name="in order").is_checked()


def is_saved_with_what_it_shows(box, first):
    box.hover()
    for kind in ("SVG", "PNG"):
        with box.page.expect_download() as download:
            box.get_by_role("button", name=kind).click()
        assert download.value.suggested_filename == (
            f"lockstep-linear-on-h200-locked-1500-speedup-of-m-8-k-64-over-the-commits.{kind.lower()}"
        )
        content = download.value.path().read_bytes()
        assert content.startswith(b"\x89PNG" if kind == "PNG" else b"<svg")
        if kind == "SVG":
            for part in ("Speedup of M=8,K=64 over the commits", "triton", f"Lockstep · {FAST} · {first}.."):
                assert part in content.decode()


def test_a_page_that_opens_is_one_step_back(visit, site):
    page = visit(f"{site[0]}/machines")
    for link, drawn in (("Overview", ".families .cell"), ("Compare", "#compare-body .card"), ("Alerts", "h1")):
        steps = page.evaluate("history.length")
        page.locator(".pages a", has_text=link).click()
        page.locator(drawn).first.wait_for(state="attached")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("history.length") == steps + 1, link
    page.go_back()
    page.locator("#compare-body .card").first.wait_for(state="attached")
    assert "hc=" in page.url, "the page fills in the commits, so its address is a permalink"
    page.go_back()
    page.locator(".families .cell").first.wait_for()
    assert "since" not in page.url, "the last visit is each reader's own"


def test_a_commit_page_leads_to_its_series(visit, site):
    root, commits = site
    page = visit(root + CommitAddress(commits[40].hash, FAST).link())
    page.locator("#commit-series tr", has_text="slower").first.get_by_role("link").click()
    page.wait_for_url("**/series/**")
    page.locator("#series-table tbody tr").first.wait_for()
    assert page.title() == "linear triton M=64,K=64 · Lockstep"


def test_a_page_prints_light_and_whole(visit, site):
    page = visit(site[0] + OverviewAddress(FAST, "cold", "all").link(), "desktop", "dark")
    becomes(page, ".grid .ag-center-cols-container .ag-row", 6)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    rows = page.locator(".on-paper tbody tr, .on-paper table > tr")
    assert (rows.count(), page.locator(".grid").first.is_hidden()) == (6, True), "all rows, not those in view"
    assert re.search(r"[▲▼] [+−]\d", "".join(rows.all_inner_texts()))
    assert page.locator("header").is_hidden()
    assert page.locator(".controls").is_hidden()
    assert background(page, "body") == 255
    assert background(page, ".families") > 240
    assert page.locator(".cell.slower").first.is_visible()


def test_a_phone_shows_the_change_of_a_comparison_however_long_its_shapes_are(visit, site):
    first, last = (site[1][at].hash for at in (0, -1))
    page = visit(f"{site[0]}/compare?bm={FAST}&bc={first}&hm={FAST}&hc={last}", "phone")
    heads = page.locator("#compare-body th")
    heads.first.wait_for()
    names = heads.all_inner_texts()
    assert "Variant and case" in names[: names.index("Change against the baseline")]
    box = heads.nth(names.index("Change against the baseline")).bounding_box()
    assert box["x"] + box["width"] <= 390
