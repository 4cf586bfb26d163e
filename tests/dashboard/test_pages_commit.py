"""One commit: every series against the commit measured before it."""

import subprocess

import pytest
import served
from compared import each
from served import words
from showcase import COMMITS, FAST, FREE
from test_dashboard_app import call
from test_pages_overview import shown

from dashboard.address import CommitAddress, parse
from dashboard.pages import commit
from dashboard.server.app import create_app, page
from lockstep.compare.at_commit import compare_commit
from lockstep.history.row_keys import PARTS

__all__ = ["shown"]

STEP = COMMITS * 2 // 3


def compared(shown, place, machine=FAST):
    store, findings = shown
    results = store.current()
    at = results.commits(machine)[place]
    return compare_commit(results, machine, at.hash, findings.of_machine(results, machine), findings.thresholds)


def test_a_step_is_told_at_its_commit_and_at_no_other(shown):
    found, earlier = compared(shown, STEP)
    at = {(one.row.variant, one.row.case): one for one in each(found)}
    told = at["triton", "M=8,K=64"]
    results = shown[0].current()
    assert earlier[told.row.suite] == results.commits(FAST)[STEP - 1]
    assert told.verdict == "slower"
    assert PARTS[told.quantity] == "speedup"
    before = found.before[told.earlier]
    assert told.percent == pytest.approx(100 * (before.speedup.value / told.row.speedup.value - 1))
    assert PARTS[at["torch", "M=8,K=64"].quantity] == "latency"
    assert {one.verdict for one in each(compared(shown, STEP - 3)[0])} <= {"same", "unsure"}


def test_what_failed_comes_first_and_the_first_commit_is_new(shown):
    assert next(each(compared(shown, COMMITS - 1)[0])).verdict == "failed"
    assert {one.verdict for one in each(compared(shown, 0)[0])} == {"new"}
    assert len(compare_commit(shown[0].current(), FAST, "0" * 40, None, shown[1].thresholds)[0]) == 0


def test_the_page_has_a_row_a_family_and_the_numbers(shown):
    store, findings = shown
    at = store.current().commits(FAST)[STEP]
    page_of, title = page(store, f"/commit/{at.hash}", "?machine=" + FAST)
    text = words(page_of)
    assert "Commit 40" in text
    assert title == f"{at.short} {FAST}"
    client = create_app(store, findings=findings).server.test_client()
    address = {"commit": at.hash, "machine": FAST}
    told, _ = compared(shown, STEP)
    [card] = commit.listed(told)
    _, head, body = card.children.children
    first = dict(zip((cell.children for cell in head.children.children), body.children[0].children, strict=True))
    before, now = (float(first[f"{side} µs"].children) for side in ("Before", "Now"))
    assert (first["Verdict"].children, now / before) == (["▼ slower"], pytest.approx(1.07, abs=0.01))
    assert len(body.children) == len(told)
    text = words(call(client, "commit-series.children", address, "torch", None)["commit-series"]["children"])
    assert text.count('"Tr"') == 1 + sum(one.row.variant == "torch" for one in each(told))
    told = words(call(client, "commit-families.children", address, None)["commit-families"]["children"])
    assert '{"children": "\\u25bc 3 slower", "className": "slower"}' in told


def test_an_address_restores_the_machine_and_takes_a_short_hash(shown):
    store, _ = shown
    at = store.current().commits(FREE)[3]
    address = CommitAddress(at.hash, FREE)
    path, _, search = address.link().partition("?")
    assert parse(path, f"?{search}") == address
    shown_page, _ = page(store, f"/commit/{at.short}", f"?{search}")
    assert f'"machine": "{FREE}"' in words(shown_page)


@pytest.mark.parametrize("path", ["/commit/0000000", "/commit/abc", "/commit/%3Cimg%3E"])
def test_an_unknown_commit_says_so(shown, path):
    assert "No results of commit" in words(page(shown[0], path, "")[0])


def test_a_machine_that_did_not_measure_the_commit_is_named(shown):
    store, _ = shown
    at = store.current().commits(FAST)[STEP]
    text = words(page(store, f"/commit/{at.hash}", "?machine=laptop-of-nobody")[0])
    assert f"laptop-of-nobody has no results of commit {at.short}" in text
    assert f"/commit/{at.hash}?machine={FAST}" in text
    assert "has no results" not in words(page(store, f"/commit/{at.hash}", f"?machine={FAST}")[0])


def test_the_page_has_the_author_and_the_date(tmp_path):
    place = served.place(tmp_path, commits=4)
    author = subprocess.run(
        ["git", "-C", place.root, "log", "-1", "--format=%an"], capture_output=True, text=True, check=True
    ).stdout.strip()
    answer = call(place.client, "commit-author.children", {"commit": place.commits[3], "machine": "h200"}, None)
    assert answer["commit-author"]["children"] == f"by {author}"
