"""The snapshot that ``asv publish`` writes: whole pages that any file server serves, linked and without the network."""

import html
import re
from types import SimpleNamespace

import pytest
from browser import served
from dash import html as elements
from playwright.sync_api import expect
from showcase import FAST, write_showcase

from dashboard.pages.parts import graph
from dashboard.snapshot import FOLDER, Snapshot
from dashboard.snapshot.pages import _file
from dashboard.snapshot.static_html import page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """asv's site of the showcase, of which only the index exists, with the snapshot beside it."""
    folder = tmp_path_factory.mktemp("site")
    results, repo = write_showcase(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_STATE", str(folder / "alerts.sqlite"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        (folder / "html").mkdir()
        (folder / "html" / "index.html").write_text('<ul><li id="nav-li-graphdisplay"></li></ul>')
        conf = SimpleNamespace(
            results_dir=str(results), repo=str(repo), project="kernels", branches=[], html_dir=str(folder / "html")
        )
        Snapshot.publish(conf, None, None, None, None)
    return folder / "html"


@pytest.fixture(scope="module")
def address(site):
    with served(site) as address:
        yield address


@pytest.fixture
def serve(address):
    """Keep the server for as long as ``visit`` keeps its pages."""
    return address


def test_every_page_is_reached_and_every_link_leads_to_a_page(site):
    seen, todo, broken = set(), [site / "index.html"], []
    while todo:
        at = todo.pop()
        seen.add(at.resolve())
        for target in re.findall(r' href="([^"#]+)', at.read_text()):
            file = (at.parent / html.unescape(target)).resolve()
            if target.startswith("data:"):
                continue
            if not file.is_file():
                broken.append((at.name, target))
            elif file.suffix == ".html" and file not in seen:
                todo.append(file)
    assert broken == []
    assert seen == {file.resolve() for file in site.rglob("*.html")}
    assert any(file.name.startswith("alert-") for file in seen)


def test_the_pages_name_no_other_host_and_are_small(site):
    files = [*(site / FOLDER).iterdir()]
    texts = [file.read_text() for file in files if file.suffix in (".html", ".css")]
    assert [url for text in texts for url in re.findall(r"https?://[^\"'< ]+", text)] == []
    assert sum(file.stat().st_size for file in files) < 6e6


def test_the_pages_say_what_the_dashboard_says(site):
    overview = (site / FOLDER / _file("machine", FAST)).read_text()
    assert f"On {FAST} since " in overview
    assert "linear triton" in overview
    assert "1 case now fails" in overview
    assert "slower by 7." in (site / FOLDER / "alerts.html").read_text() + overview
    family = (site / FOLDER / _file("family", FAST, "linear")).read_text()
    assert family.count("data-figure=") >= 5
    assert "triton" in family


def test_names_are_text_and_never_markup_or_an_address_elsewhere():
    hostile = '"><script>alert(1)</script>'
    body = elements.Div(
        [hostile, elements.A("x", href="javascript:alert(1)"), graph({"data": [{"name": hostile}]}, hostile)],
        title=hostile,
    )
    text = page(hostile, body, [], hostile, lambda address: "")
    assert "<script>alert" not in text
    assert "javascript:" not in text
    assert _file("machine", "a/b") != _file("machine", "a b")
    assert "/" not in _file("machine", "../../etc")


def test_chromium_draws_the_charts_of_a_family(visit, address):
    visit.page.goto(f"{address}/{FOLDER}/{_file('family', FAST, 'linear')}")
    visit.page.locator(".scatterlayer .trace path").first.wait_for(state="attached")
    expect(visit.page.get_by_role("link", name="Overview")).to_be_visible()
    assert visit.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
