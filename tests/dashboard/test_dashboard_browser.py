"""The pages in a real browser: what is shown equals the files, nothing leaves the host, the console is clean."""

import re
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from served import serving
from test_dashboard_app import CASE, golden
from trees import MACHINE, open_store, record, write_measurement

from dashboard.address import FamilyAddress
from dashboard.server.app import create_app

SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
LINK = FamilyAddress(MACHINE, "linear", (CASE,), "cold").link()
ROW = f".ag-center-cols-container .ag-row:has-text('{CASE}'):has-text('splitk')"
HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture
def serve():
    """Serve a results folder; gives the address."""
    with ExitStack() as served:
        yield lambda store: served.enter_context(serving(create_app(store)))


#: Kinds of traces that a chart asks for and does not get: what its bundle lacks plotly.js draws as a line, silently.
OTHERWISE = """() => [...document.querySelectorAll(".js-plotly-plot")].flatMap(plot => (plot._fullData || [])
    .filter(drawn => drawn.type !== (drawn._input.type || "scatter")).map(drawn => drawn._input.type))"""


@pytest.fixture
def visit(window, serve):
    """Open an address; at the end no page may have logged anything, failed a request, asked another host, or drawn a
    chart of another kind.
    """
    pages, faults = [], []

    def note(response):
        if response.status >= 400:
            faults.append(f"{response.status} {response.url}")

    def guard(request):
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob") and url.hostname != "127.0.0.1":
            faults.append(f"left the host: {request.url}")

    def go(address, size="desktop", scheme="light"):
        page = window.open(*SIZES[size], phone=size == "phone", color_scheme=scheme)
        pages.append(page)
        page.on(
            "console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", guard)
        page.on("response", note)
        page.goto(address)
        return page

    yield go
    for page in pages:
        faults += [f"plotly.js has no {kind} here" for kind in page.evaluate(OTHERWISE)]
        page.close()
    assert faults == []


@pytest.fixture
def site(serve, tmp_path):
    return serve(golden(tmp_path / "results"))


def background(page, selector):
    colour = page.locator(selector).first.evaluate("element => getComputedStyle(element).backgroundColor")
    return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(",")[:3])) / 3


def becomes(page, selector, count):
    """Wait until so many elements match; playwright's own waiting for JavaScript needs what our policy forbids."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(count, timeout=20_000)


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_the_overview_shows_the_files_numbers(visit, site, size, scheme):
    page = visit(site, size, scheme)
    row = page.locator(ROW if size == "desktop" else ROW.replace("center-cols", "pinned-left-cols"))
    row.wait_for()
    page.get_by_text(re.compile(r"^\d+ rows$")).wait_for()
    assert "at cccccccc" in page.locator(".said").first.inner_text()
    if size == "desktop":
        cells = {name: row.locator(f"[col-id={name}]").inner_text() for name in ("latency", "speedup", "floor", "mde")}
        assert cells == {"latency": "6.188", "speedup": "▲1.901.87–1.92", "floor": "70.9", "mde": "0.40"}
        assert page.locator("[col-id=value], [col-id=unit]").count() == 0
    assert fits(page)
    if size == "phone":
        latency = page.locator(".ag-header-cell[col-id=latency]").bounding_box()
        assert latency["x"] + latency["width"] <= 390, "the first column holds variant and case"
        # A finger can hit a cell.
        assert page.locator(".families .cell").first.evaluate("cell => cell.offsetWidth") == 24
    for part in ("body", ".ag-row", ".ag-header"):
        assert (background(page, part) < 80) == (scheme == "dark"), part


@pytest.mark.parametrize(
    ("size", "scheme"), [pytest.param("desktop", "light", marks=pytest.mark.thorough), ("phone", "dark")]
)
def test_the_family_page_shows_the_files_numbers(visit, site, size, scheme):
    page = visit(site + LINK, size, scheme)
    page.locator("#family-trend .js-plotly-plot .scatterlayer .points path").first.wait_for()
    lines = page.locator("#family-trend .js-plotly-plot").first.evaluate(
        "plot => plot.data.filter(t => t.name).map(t => [t.name, t.y, t.line.color])"
    )
    drawn = {name: values for name, values, _ in lines}
    assert drawn.keys() == {"splitk", "torch"}
    assert drawn["splitk"] == pytest.approx([5.625, 5.625, 6.1875])
    assert drawn["torch"] == pytest.approx([10.6875, 10.6875, 11.75625])
    assert {name: colour for name, _, colour in lines}["splitk"] == {"light": "#0072B2", "dark": "#56B4E9"}[scheme]
    page.locator("#family-latest .js-plotly-plot").last.wait_for()
    row = page.locator("#family-latest tbody tr", has_text="splitk")
    assert row.locator("td").all_inner_texts() == [
        CASE, "splitk", "6.188 6.126–6.249", "1.900 1.870–1.920", "70.9", "2\u202f715", "21.7", "0.40", "ok",
    ]  # fmt: skip
    assert page.title() == f"linear on {MACHINE} · Lockstep"
    assert fits(page)
    assert page.locator(".filters-fold summary").is_visible() == (size == "phone")
    if size == "phone":
        # The controls fold, so that the first chart is on the first screen.
        chart = page.locator("#family-trend .card").first.bounding_box()
        assert chart["y"] + chart["height"] < SIZES["phone"][1]
        assert not page.get_by_text("by date").is_visible()
        page.locator(".filters-fold summary").tap()
        page.get_by_text("by date").wait_for()
        # A tap on a chart reveals its buttons, which a pointer reveals elsewhere.
        page.locator("#family-trend .graph").first.tap()
        saves = page.locator("#family-trend .saves").first
        assert saves.evaluate("buttons => [getComputedStyle(buttons).display, getComputedStyle(buttons).opacity]") == [
            "flex",
            "1",
        ]
    assert not page.locator(".printed").is_visible()
    page.emulate_media(media="print")
    assert MACHINE in page.locator(".printed").inner_text()
    page.emulate_media(media="screen")
    assert (background(page, ".card") < 80) == (scheme == "dark")


def test_a_row_leads_to_its_series_and_family_and_back(visit, site):
    page = visit(site)
    page.locator(ROW).locator("[col-id=variant]").click()
    page.wait_for_url(f"{site}/series/**")
    page.locator("#series-table tbody tr").first.wait_for()
    page.locator(".crumbs a", has_text="linear").click()
    page.wait_for_url(f"{site}/family/**")
    page.locator("#family-latest tbody tr").first.wait_for()
    assert page.locator("#family-latest tbody tr td:first-child").all_inner_texts() == [CASE, CASE]
    page.go_back()
    page.locator("#series-table tbody tr").first.wait_for()
    page.go_back()
    page.locator(ROW).wait_for()


def test_the_address_restores_the_choices(visit, site):
    page = visit(site + LINK)
    page.locator("#family-trend .js-plotly-plot").first.wait_for()
    page.locator(".chips label", has_text="torch").click()
    page.locator(".chips label", has_text="Speedup").click()
    becomes(page, "#family-latest tbody tr", 1)
    becomes(page, "#family-trend .card", 1)
    address = page.url
    again = visit(address)
    again.locator("#family-latest tbody tr").first.wait_for()
    assert again.locator("#family-latest tbody tr td:nth-child(2)").all_inner_texts() == ["splitk"]
    becomes(again, "#family-trend figcaption", 1)
    assert again.locator("#family-trend figcaption").all_inner_texts() == [f"{CASE}\nLatency µs"]
    assert again.url == address


def test_the_colours_switch_and_are_remembered(visit, site):
    page = visit(site + LINK)
    plot = page.locator("#family-trend .js-plotly-plot").first
    plot.wait_for()
    page.locator("#scheme").click()
    page.locator("#family-trend .xtick text[style*='rgb(154, 165, 177)']").first.wait_for()
    assert background(page, ".card") < 80
    page.reload()
    plot.wait_for()
    assert plot.evaluate("plot => plot.layout.font.color") == "#E4E8EC"
    assert background(page, "body") < 80


def test_markup_in_names_stays_text(visit, serve, tmp_path):
    path = write_measurement(tmp_path, [record(), record(variant=HOSTILE, case=HOSTILE)])
    path.with_name(f"deadbeef-{HOSTILE.replace('/', '')}.json").write_text("<script>document.title=2</script>")
    site = serve(open_store(tmp_path))
    page = visit(site)
    page.locator(".trouble summary").click()
    assert HOSTILE in page.locator(".problems").inner_text()
    page.locator(f".ag-row:has-text('{HOSTILE[:8]}')").first.wait_for()
    page.goto(site + FamilyAddress(MACHINE, "linear", (HOSTILE,), "cold").link())
    page.locator("#family-trend .js-plotly-plot .points path").first.hover(force=True)
    page.locator(".hoverlayer text", has_text="<img").first.wait_for()
    assert page.locator("#page img").count() == 0
    assert page.title() == f"linear on {MACHINE} · Lockstep"


@pytest.mark.parametrize("size", [pytest.param("desktop", marks=pytest.mark.thorough), "phone"])
def test_with_nothing_measured_the_page_says_what_to_run(visit, serve, tmp_path, size):
    page = visit(serve(open_store(tmp_path / "results")), size)
    page.get_by_text("lockstep run HEAD").wait_for()
    assert fits(page)
