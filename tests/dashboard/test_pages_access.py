"""Every page can be read and used by everybody: no fault that axe-core knows, and a keyboard is enough."""

import pytest
from playwright.sync_api import expect
from served import place, serving
from test_waiting_browser import PAGES, Held, waits_says_what_failed_then_fills

#: Of what a reader waits for on each page.
READY = {
    "overview": ".grid .ag-row",
    "family": "#family-latest tbody tr",
    "series": "#series-table tbody tr",
    "commit": "#commit-series tbody tr",
    "compare": "#compare-body tbody tr",
    "alerts": "#alerts-list tbody tr",
    "alert": "#alert-body tbody tr",
    "machines": "#machines-body tbody tr",
    "nothing": ".notice",
}

#: Pages with a filter, and pages with a table of links.
FILTERED = {"overview", "family", "commit", "compare", "alerts"}
WALKED = {"commit", "family", "series", "compare", "alerts", "alert", "machines"}

#: What a page offers to a keyboard; a table is entered once and walked from there.
OFFERED = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled && one.tabIndex >= 0
  && !one.closest(".grid") && !one.closest("dialog:not([open])")
  && !(one.type === "radio" && !one.checked)).map((one, at) => (one.dataset.offered = at))"""

#: Colours that fade into others are none of the two for a while.
STILL = "*, *::before, *::after { transition: none !important; animation: none !important; }"

#: What is focused, and how it looks with what stands around it.
FOCUSED = """() => {
  const one = document.activeElement;
  window.before = window.focused;
  window.focused = one;
  const was = window.before && lookOf(window.before);
  return { at: one.dataset.offered, inside: !!one.closest(".grid"), looks: lookOf(one), was };
}"""
LOOKS = """() => { window.lookOf = (one) => {
  const around = [one, one.nextElementSibling, one.parentElement, one.parentElement.closest(".mantine-Input-input")];
  return JSON.stringify(around.filter(Boolean).map((part) => {
    const style = getComputedStyle(part);
    return [style.outlineStyle, style.outlineWidth, style.outlineColor, style.boxShadow, style.borderColor];
  }));
}; }"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    there = place(tmp_path_factory.mktemp("access"))
    paths = there.pages | {"nothing": "/nothing/here"}
    with serving(there.app) as address:
        yield {name: f"{address}{path}" for name, path in paths.items()}


@pytest.fixture
def opened(here, window):
    """Open a page by its name."""

    def open_page(name, failing=False):
        page = window.open(1400, 900, reduced_motion="reduce")
        held = Held(page) if failing else None
        page.goto(here[name])
        if held:
            waits_says_what_failed_then_fills(held)
        page.add_style_tag(content=STILL)
        page.locator(READY[name]).first.wait_for()
        return page

    return open_page


def faults(page, **options):
    """What axe-core finds, with options of its own; charts are drawings to it."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="no axe-core: pages are not checked by it"
    )
    found = axe.Axe().run(page, {"exclude": [[".main-svg"]]}, {"resultTypes": ["violations"], **options}).response
    return [
        (fault["id"], node["target"], node["html"][:200]) for fault in found["violations"] for node in fault["nodes"]
    ]


@pytest.mark.parametrize("name", [*PAGES, "nothing"])
def test_every_page_tells_its_failure_is_readable_in_both_colours_and_usable_by_keyboard(opened, name):
    page = opened(name, failing=name in PAGES)
    # A part that is being redrawn is faded meanwhile.
    expect(page.locator(".loading")).to_have_count(0, timeout=20_000)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert faults(page) == []
    if name != "nothing":
        assert not_reached_by_tab(page) == []
    if name in FILTERED:
        slash_goes_to_the_filter(page)
    if name in WALKED:
        j_and_k_go_through_the_rows(page)
    page.emulate_media(color_scheme="dark")
    # The page follows a little later.
    page.locator("html[data-mantine-color-scheme=dark]").wait_for(state="attached")
    assert faults(page, runOnly=["color-contrast"]) == []


def test_axe_finds_no_fault_in_what_opens(opened):
    page = opened("overview")
    page.locator("#keys").click()
    page.get_by_text("next and previous row").wait_for()
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.locator("#overview-since").click()
    page.get_by_role("option").first.wait_for()
    page.keyboard.type("first")
    assert page.locator("#overview-since").input_value() == "first", "typing replaces the text of a menu"
    page.get_by_role("option", name="the first commit").wait_for()
    # A menu hangs outside of the page's landmarks while it is open, and its field walks through it.
    off = {"enabled": False}
    assert faults(page, rules={"region": off, "scrollable-region-focusable": off}) == []


def not_reached_by_tab(page):
    """Controls that Tab does not reach, or that look the same with and without focus; the start of their HTML."""
    page.evaluate(LOOKS)
    wanted = {str(at) for at in page.evaluate(OFFERED)}
    page.evaluate("() => { window.focused = undefined; document.activeElement.blur(); }")
    reached, unseen, before = set(), [], None
    for _ in range(3 * len(wanted) + 20):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        # Unfocused, what was focused before must look different.
        if before and before["at"] is not None and found["was"] == before["looks"]:
            unseen.append(before["at"])
        before = found
        reached |= {found["at"]} - {None}
        if found["inside"] or reached == wanted:
            break
    return page.evaluate(
        "wanted => wanted.map((at) => document.querySelector(`[data-offered='${at}']`).outerHTML.slice(0, 150))",
        sorted((wanted - reached) | set(unseen)),
    )


def slash_goes_to_the_filter(page):
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    expect(page.locator(".filter input").first).to_be_focused()


def j_and_k_go_through_the_rows(page):
    page.evaluate("document.activeElement.blur()")
    rows = page.locator(".table tbody tr:has(a)")
    page.keyboard.press("j")
    expect(rows.nth(0).locator("a").first).to_be_focused()
    if rows.count() > 1:
        page.keyboard.press("j")
        expect(rows.nth(1).locator("a").first).to_be_focused()
        page.keyboard.press("k")
    expect(rows.nth(0).locator("a").first).to_be_focused()
