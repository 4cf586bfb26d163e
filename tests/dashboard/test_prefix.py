"""Below a path of a host every asset, link, request and redirect keeps that path, whatever the proxy does with it."""

import argparse
import re
from urllib.parse import urlsplit

import pytest
from served import ACCESS, call, place, serving

from dashboard.address import SeriesAddress
from dashboard.server.app import create_app
from dashboard.server.command import root_of

ROOT = "/lockstep"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return place(tmp_path_factory.mktemp("prefix"))


@pytest.fixture(scope="module")
def app(here):
    return create_app(here.store, here.service, ACCESS, root=ROOT)


def test_pages_and_their_links_are_below_the_path(app, here):
    number = here.service.alerts.alerts(machine="h200")[0].id
    series = SeriesAddress("h200", "linear", "triton", "M=8,K=64", "cold").link()
    client = app.server.test_client()
    links = set(re.findall(r'(?:src|href)="(/[^"]*)"', client.get(f"{ROOT}/").text))
    links |= hrefs(client.get("/_dash-layout"))
    for path in (
        "/",
        "/alerts",
        "/machines",
        "/compare",
        "/family/h200/linear",
        f"/alert/{number}",
        series,
        "/nowhere",
    ):
        answer = call(client, "page.children", [ROOT + urlsplit(path).path], [f"?{urlsplit(path).query}"])
        assert answer.status_code == 200, path
        assert ("There is no such page" in answer.text) == (path == "/nowhere"), path
        links |= hrefs(answer)
    links |= hrefs(call(client, "overview-said.children", ["h200", "all", "all", "time", None, None]))
    assert {link for link in links if not link.startswith(f"{ROOT}/")} == set()
    assert {f"{ROOT}/alert/{number}", f"{ROOT}/compare", f"{ROOT}/feed.atom", ROOT + series} <= links


def hrefs(answer):
    """Addresses in an answer of Dash, which escapes "/"."""
    return set(re.findall(r'"href":"(/[^"]*)"', answer.text.replace("\\u002f", "/").replace("\\u0026", "&")))


@pytest.mark.parametrize("kept", ["", ROOT], ids=["removed by the proxy", "kept by the proxy"])
def test_programs_and_redirects_keep_the_path(app, kept):
    client = app.server.test_client()
    assert client.get(f"{kept}/healthz").json["status"] == "ok"
    answer = client.get(f"{kept}/api/v1/points/h200/latest?limit=2")
    assert answer.headers["Link"].startswith(f"<{ROOT}/api/v1/points/h200/latest?")
    assert client.get(f"{kept}/alerts/1").headers["Location"] == f"{ROOT}/alert/1"


def test_a_reader_finds_the_way_below_the_path(app, here, visit):
    with serving(app) as site:
        page = visit.page
        page.goto(f"{site}{ROOT}/")
        page.locator("#overview-grid .ag-cell").first.click()
        page.wait_for_url("**/lockstep/series/**")
        page.locator("header a", has_text="Alerts").click()
        page.wait_for_url("**/lockstep/alerts**")
        page.get_by_text("All", exact=True).click()
        page.wait_for_url(f"{site}{ROOT}/alerts?state=all")
        page.locator("#alerts-list a.row").first.click()
        page.wait_for_url("**/lockstep/alert/*")
        page.locator("#alert-body .graph").first.wait_for()
        page.locator("header a.brand").click()
        page.locator("#overview-grid .ag-cell").first.wait_for()
        assert urlsplit(page.url).path == f"{ROOT}/"
        assert visit.faults == []


@pytest.mark.parametrize(("text", "root"), [("/", ""), ("", ""), ("/lockstep/", "/lockstep"), ("/a/b-c", "/a/b-c")])
def test_a_path_is_a_path(text, root):
    assert root_of(text) == root


@pytest.mark.parametrize("text", ["lockstep", "//evil.example", "/a//b", "/a?b", "/a b", "/../a", "https://x/y"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="write a path such as /lockstep/"):
        root_of(text)
