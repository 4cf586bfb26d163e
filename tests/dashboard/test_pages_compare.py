"""Two sides are compared case by case: each ratio is the files', and a verdict needs a change beyond its noise."""

import json
import math
import re
from urllib.parse import quote

import plotly.graph_objects as go
import pytest
from playwright.sync_api import expect
from scipy import special
from served import call, place, serving, words
from trees import open_store, record, write_measurement

from dashboard.address import link
from dashboard.pages import compare as page
from dashboard.server.app import create_app
from lockstep.compare.two_sides import Side, compare, differing, toolchain_text
from lockstep.record.model import Estimate
from lockstep.suite.thresholds import Thresholds
from lockstep.timing.intervals import NOMINAL

A, B, RULES = "a" * 40, "b" * 40, Thresholds()
MACHINE = "h200-locked@1500"


def tree(tmp_path, base, head):
    """One record at each of two commits, and the comparison of the two."""
    root = tmp_path / "results"
    write_measurement(root, base, commit=A, date=1_000_000)
    write_measurement(root, head, commit=B, date=2_000_000)
    return open_store(root).current()


def pair(tmp_path, base, head, quantity="speedup", **sides):
    results = tree(tmp_path, base, head)
    found = compare(results, Side(MACHINE, A, **sides), Side(MACHINE, B, **sides), quantity, RULES)
    return found[0] if found else found


def ratio(value, half=0.002):
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def measured(value, half=0.002, **more):
    return record(speedup=ratio(value, half), baseline="torch", epochs=6, **more)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return place(tmp_path_factory.mktemp("compare"))


@pytest.mark.parametrize(
    ("after", "half", "verdict"),
    [
        (1.9 / 1.05, 0.002, "slower"),
        (1.9 * 1.05, 0.002, "faster"),
        (1.9, 0.002, "same"),
        # Surely there, and too small to matter.
        (1.9 / 1.004, 0.001, "same"),
        # Large, and no larger than its noise.
        (1.9 / 1.05, 0.08, "unsure"),
        # As good as before, if only one could tell.
        (1.9, 0.08, "unsure"),
    ],
)
def test_a_verdict_needs_a_change_beyond_its_noise(tmp_path, after, half, verdict):
    one = pair(tmp_path, [measured(1.9, half)], [measured(after, half)])
    assert one.verdict == verdict
    assert one.log == pytest.approx(math.log(1.9 / after), abs=1e-6)
    # Two intervals of this half width by Student's t over six epochs, seen by the normal's 1.96.
    assert one.error == pytest.approx(math.sqrt(2) * half / special.stdtrit(5, 0.5 + NOMINAL / 2), rel=2e-3)
    assert one.high - one.log == pytest.approx(1.96 * one.error, rel=1e-3)


def test_bars_end_where_the_interval_does(tmp_path):
    one = pair(tmp_path, [measured(1.9, 0.5)], [measured(0.4, 0.5)])
    [trace] = page.scatter([one], "light")["data"]
    [middle], [up], [down] = trace["y"], trace["error_y"]["array"], trace["error_y"]["arrayminus"]
    assert [middle - down, middle + up] == pytest.approx([100 * math.expm1(one.low), 100 * math.expm1(one.high)])
    assert middle - down > -100


def test_the_noise_of_both_sides_counts(tmp_path):
    one = pair(tmp_path, [measured(1.9, 0.003)], [measured(1.9, 0.004)])
    assert one.error == pytest.approx(0.005 / special.stdtrit(5, 0.5 + NOMINAL / 2), rel=2e-3)


def test_latency_compares_the_times(tmp_path):
    base = measured(1.9, latency=ratio(5e-6))
    head = measured(1.9, latency=ratio(5.5e-6))
    one = pair(tmp_path, [base], [head], "latency")
    assert (one.base, one.head, one.verdict) == (5e-6, 5.5e-6, "slower")
    assert one.log == pytest.approx(math.log(1.1))


def test_another_projects_numbers_keep_their_unit(tmp_path):
    root = tmp_path / "results"
    for commit, load in ((A, 12_000_000), (B, 15_000_000)):
        path = write_measurement(root, [measured(1.9)], commit=commit, date=1 + (commit == B), proof=False)
        told = json.loads(path.read_text())
        told["results"] = {"io.peakmem_load": [[load], [], "v1"], "io.time_load": [[2e-3], [], "v1"]}
        path.write_text(json.dumps(told))
    results = open_store(root).current()
    found = compare(results, Side(MACHINE, A), Side(MACHINE, B), "speedup", RULES)
    load, time = found
    assert (load.unit, load.base, load.head) == ("bytes", 12_000_000, 15_000_000)
    assert time.unit == "seconds"
    chosen = dict.fromkeys(page.KEYS, "") | {"bm": MACHINE, "bc": A, "hm": MACHINE, "hc": B}
    text = words(page.body(results, chosen, "light", RULES))
    assert "12.00 MB" in text
    assert "15.00 MB" in text
    assert json.dumps("2\N{NARROW NO-BREAK SPACE}000 µs") in text
    [trace] = page.scatter([time], "light")["data"]
    assert trace["x"] == [2000]
    assert "peakmem" not in words(page.body(results, chosen | {"suite": "io.time_load"}, "light", RULES))
    assert "Figure" not in words(page.body(results, chosen | {"suite": "io.peakmem_load"}, "light", RULES))


@pytest.mark.parametrize("quantity", ["speedup", "latency"])
@pytest.mark.parametrize("side", ["base", "head"])
def test_a_failure_is_a_verdict_and_says_why(tmp_path, quantity, side):
    both = [measured(1.9)], [record(state="failed", reason="wrong by 3", latency=None, speedup=None)]
    one = pair(tmp_path, *(both if side == "head" else both[::-1]), quantity)
    assert (one.verdict, one.why) == ("failed", f"{side}: wrong by 3")
    assert math.isnan(one.log)


def test_what_cannot_be_compared_is_counted(tmp_path):
    found = pair(tmp_path, [measured(1.9)], [measured(1.9, version="ruler2")])
    assert (found.other_version, found.one_sided, len(found)) == (1, 0, 0)
    found = pair(tmp_path / "more", [measured(1.9)], [measured(1.9, case="M=1")])
    assert (found.other_version, found.one_sided, len(found)) == (0, 2, 0)


def test_variants_are_compared_case_by_case(tmp_path):
    rows = [measured(1.9), measured(2.0, variant="pdl"), measured(1.5, variant="pdl", case="M=1")]
    results = tree(tmp_path, rows, rows)
    found = compare(results, Side(MACHINE, A, "splitk"), Side(MACHINE, A, "pdl"), "speedup", RULES)
    [one] = found
    assert (one.base_variant, one.head_variant, one.verdict) == ("splitk", "pdl", "faster")
    assert one.log == pytest.approx(math.log(1.9 / 2.0))
    assert found.one_sided == 1
    for sides in ((Side(MACHINE, A, "pdl"), Side(MACHINE, A)), (Side(MACHINE, A), Side(MACHINE, A, "pdl"))):
        found = compare(results, *sides, "speedup", RULES)
        assert [(one.base_variant, one.head_variant) for one in found] == [("pdl", "pdl")] * 2
        assert found.one_sided == 1


def test_the_loudest_and_largest_come_first_and_what_was_not_asked_for_is_left_out(tmp_path):
    cases = {"M=1": 1.9 / 1.02, "M=2": 1.9 * 1.1, "M=4": 1.9 / 1.05}
    before = [measured(1.9, case=case) for case in (*cases, "M=8")]
    lost = record(state="failed", latency=None, speedup=None, case="M=8")
    results = tree(tmp_path, before, [*(measured(value, case=case) for case, value in cases.items()), lost])

    def found(**only):
        return [one.case for one in compare(results, Side(MACHINE, A), Side(MACHINE, B), "speedup", RULES, **only)]

    assert found() == found(suite="linear", l2=before[0].l2) == ["M=8", "M=4", "M=1", "M=2"]
    assert found(suite="kda") == found(l2="warm" if before[0].l2 == "cold" else "cold") == []


def test_a_planted_slowdown_and_its_machine_code_are_found(here):
    found = compare(
        here.store.current(), Side("h200", here.commits[11]), Side("h200", here.commits[12]), "speedup", RULES
    )
    assert found.counts == {"slower": 3}
    assert math.expm1(found.geomean) == pytest.approx(0.06, abs=0.004)
    assert {pair.code for pair in found} == {"matmul machine code changed"}


def test_what_else_differs_is_named(here):
    results = here.store.current()
    ours, theirs = (results.run_at("b200", here.commits[n]) for n in (6, 8))
    assert differing(ours, theirs) == [("torch", "2.11.0", "2.13.0")]
    assert toolchain_text(theirs).startswith("torch 2.13.0 · triton 3.6.0")


def test_an_address_restores_the_sides_and_short_hashes_do(here):
    found = page.layout(
        here.store.current(), f"?bm=b200&bc={here.commits[2][:8]}&hm=h200&quantity=latency&suite=linear"
    )
    text = words(found)
    assert f'"value": "{here.commits[2]}"' in text
    assert '"value": "latency"' in text


def test_a_row_has_few_elements(here):
    """Dash's renderer takes a time that grows with the square of the elements: 1200 took 3 to 20 s."""
    chosen = dict.fromkeys(page.KEYS, "") | {"bm": "h200", "bc": here.commits[11], "hm": "h200", "hc": here.commits[12]}
    [*_, table] = page.body(here.store.current(), chosen, "light", RULES)
    rows = table.children.children[2].children
    assert max(words(row).count('"namespace": ') for row in rows) <= 12


def test_two_machines_are_compared_by_their_latency(here):
    """Two machines have baselines of their own: a faster kernel beside a faster baseline was called slower."""
    results = here.store.current()
    assert page.layout(results, "?bm=b200&hm=h200")["compare-quantity"].value == "latency"
    assert page.layout(results, "?bm=h200&hm=h200")["compare-quantity"].value == "speedup"
    chosen = dict.fromkeys(page.KEYS, "") | {"bm": "b200", "bc": here.commits[2], "hm": "h200", "hc": here.commits[2]}
    latency, ratio = (words(page.body(results, chosen | {"quantity": one}, "light", RULES)) for one in ("", "speedup"))
    assert "Change of the latency" in latency
    assert "Change against the baseline" in ratio
    assert "each machine's own baseline" in ratio
    assert "each machine's own baseline" not in latency


@pytest.mark.parametrize("search", ["?bm=nowhere&bc=zz", "?quantity=x&l2=x&suite=x&bv=x", "?bm=" + "<b>" * 99])
def test_an_address_that_makes_no_sense_gets_a_page(here, search):
    assert "compare-body" in words(page.layout(here.store.current(), search))
    chosen = dict.fromkeys(page.KEYS, "") | {"bm": "nowhere", "hm": "h200"}
    assert "no results" in words(page.body(here.store.current(), chosen, "light", RULES))


def test_a_machine_brings_its_commits(here):
    chosen = (here.commits[1], here.commits[2], "speedup")
    answer = call(here.client, "compare-bc.data", ["b200", "h200", None], chosen).json["response"]
    assert [one["value"] for one in answer["compare-bc"]["data"]] == here.commits[14::-2]
    # Two machines are compared at one commit, by their latency.
    assert {answer[f"compare-{side}c"]["value"] for side in "bh"} == {here.commits[2]}
    assert answer["compare-quantity"]["value"] == "latency"
    found = page.layout(here.store.current(), "?bm=b200&hm=h200")
    assert {found[f"compare-{side}c"].value for side in "bh"} == {here.commits[14]}


def test_new_results_renew_the_comparison_and_its_menus(here):
    known = here.client.get("/_dash-dependencies").json
    for output in ("compare-body.children", "compare-bc.data", "compare-hc.data"):
        [inputs] = [one["inputs"] for one in known if output in one["output"]]
        assert {"id": "version", "property": "data"} in inputs


def test_in_a_browser_the_sides_are_chosen_and_kept(visit, here):
    ends = {"bm": "h200", "bc": here.commits[11], "hm": "h200", "hc": here.commits[12]}
    with serving(here.app) as address:
        tab = visit.page
        tab.goto(address + link("/compare", **ends))
        expect(tab.locator("#compare-body .said")).to_contain_text("▼ 3 slower", timeout=20_000)
        tab.get_by_text("Latency", exact=True).click()
        expect(tab.locator("#compare-body tbody tr")).to_have_count(6)
        assert "quantity=latency" in tab.url
        tab.set_viewport_size({"width": 390, "height": 844})
        tab.reload()
        tab.locator(".js-plotly-plot .points path").first.wait_for()
        expect(tab.locator("#compare-body tbody tr")).to_have_count(6)
        assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        # An address with two machines restores its own commits and quantity; a choice of a machine sets them.
        ends = {"bm": "b200", "bc": here.commits[2], "hm": "h200", "hc": here.commits[12], "quantity": "speedup"}
        tab.goto(address + link("/compare", **ends))
        expect(tab.locator("#compare-body")).to_contain_text("each machine's own baseline")
        expect(tab.locator("#compare-hc")).to_have_value(re.compile(here.commits[12][:8]))
        tab.goto("about:blank")


def test_markup_in_names_stays_text(visit, tmp_path):
    hostile = '<img src=x onerror="document.title=1">'
    root = tmp_path / "results"
    for commit, date in ((A, 1_000_000), (B, 2_000_000)):
        write_measurement(root, [measured(1.9), measured(1.9, variant=hostile, case=hostile)], commit=commit, date=date)
    with serving(create_app(open_store(root))) as address:
        tab = visit.page
        tab.goto(f"{address}/compare?l2={quote(hostile)}&suite={quote(hostile)}")
        tab.goto(f"{address}/compare")
        tab.locator("td", has_text="<img").first.wait_for()
        tab.goto(f"{address}/alert/{quote(hostile)}")
        tab.get_by_text("There is no").wait_for()
        assert tab.locator("#page img").count() == 0
        assert tab.title() != "1"
        tab.goto("about:blank")


def test_another_toolchain_has_a_picture_of_what_it_changed(here):
    """A dot for each case, coloured by family, and nothing of it where both sides have one toolchain."""
    results = here.store.current()

    def drawn(machine, base, head):
        chosen = dict.fromkeys(page.KEYS, "") | {"bm": machine, "hm": machine, "bc": base, "hc": head}
        return page.body(results, chosen, "light", RULES)

    parts = drawn("b200", here.commits[6], here.commits[8])
    [card] = [part for part in parts if "by family" in words(part)]
    left, right = (span.children for span in card.children[0].children)
    assert left.endswith("by family: torch 2.11.0 → 2.13.0")
    assert right == "a dot is a case; the commit differs as well"
    [graph] = card.children[1].children
    go.Figure(graph.figure)
    [box] = graph.figure["data"]
    assert box["name"] == "linear"
    pairs = compare(results, Side("b200", here.commits[6]), Side("b200", here.commits[8]), "speedup", RULES)
    assert sorted(box["x"]) == pytest.approx(sorted(100 * math.expm1(one.log) for one in pairs))
    assert graph.figure["layout"]["meta"].startswith("b200 ")
    assert "by family" not in words(drawn("h200", here.commits[6], here.commits[8]))
