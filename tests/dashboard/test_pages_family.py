"""The family page: marks of what was found, relative trends, the roofline, and another project's units."""

import json
import subprocess

import plotly.graph_objects as go
import pytest
from history import DAY_MS, START_MS, commits_of
from served import words
from showcase import COMMITS, FAST
from test_dashboard_app import CASE, golden
from test_pages_overview import shown
from trees import MACHINE, open_store, record, write_measurement

from dashboard.address import FamilyAddress
from dashboard.charts.at_commit import roofline
from dashboard.charts.theme import styles
from dashboard.pages import family, family_trends
from dashboard.pages.family_trends import informative_cases
from lockstep.compare.read_rows import newest_rows
from lockstep.record.model import Estimate

__all__ = ["shown"]


def charts(shown, address, scheme="light"):
    store, findings = shown
    results = store.current()
    cards = family_trends.trends(results, address, scheme, findings.of_machine(results, address.machine))
    return [card.children[1].children[0].figure for card in cards]


def test_a_change_is_marked_with_its_commit_and_cause(shown):
    address = FamilyAddress(FAST, "linear", ("M=8,K=64",), "cold", ("speedup",), ("torch", "triton"))
    [figure] = charts(shown, address)
    go.Figure(figure)
    signs = figure["data"][-1]
    assert (signs["text"], signs["x"]) == (["▼"], [COMMITS * 2 / 3 - 0.5])
    for part in ("triton", "+6.9 %", "own commit", "Commit 40", "code changed"):
        assert part in signs["hovertext"][0]


def test_the_roofline_stands_on_the_machines_own_controls(tmp_path):
    results = golden(tmp_path / "results").current()
    rows = list(newest_rows(results, MACHINE))
    controls = results.runs_of(MACHINE)[-1].controls
    figure = roofline(rows, controls, styles(["splitk"], set()), "dark")
    go.Figure(figure)
    roof, points = figure["data"]
    assert roof["y"][1] == roof["y"][2] == pytest.approx(790.0)
    assert roof["x"][1] == pytest.approx(790e12 / 4.3e12)
    row = next(row for row in rows if row.variant == "splitk" and row.case == CASE)
    assert row.flops / row.latency.value / 1e12 in points["y"]
    assert roofline(rows, {}, styles(["splitk"], set()), "dark") is None
    address = FamilyAddress(MACHINE, "linear", (CASE,), "cold", ("latency",), ("splitk",))
    assert "roofline" in words(family.latest(results, address, "light"))


@pytest.mark.parametrize(
    ("suite", "case", "unit"), [("io.Load.peakmem_load", "rows=1000", "MB"), ("index.track_depth", "", "levels")]
)
def test_other_units_are_drawn_and_listed(shown, suite, case, unit):
    results = shown[0].current()
    text = words(family.layout(results, FamilyAddress("laptop", suite)))
    assert '"value": ["value"]' in text
    address = FamilyAddress("laptop", suite, (case,), "", ("value",), ("",))
    [figure] = charts(shown, address)
    go.Figure(figure)
    last = [trace for trace in figure["data"] if trace.get("mode") == "lines+markers"][-1]
    assert (last["y"][-1], unit in last["text"][-1]) == (90 if case else COMMITS // 20 - 1, True)
    told = words(family.latest(results, address, "light"))
    assert unit in told
    assert "Variant" not in told, "a column without a value is left out"


def test_the_first_cases_are_those_of_this_machine(tmp_path):
    small = record(case="M=1,K=2,N=2", state="na", reason="a shape for CPUs", latency=None, speedup=None)
    write_measurement(tmp_path / "r", [small, record()])
    text = words(family.layout(open_store(tmp_path / "r").current(), FamilyAddress(MACHINE, "linear")))
    assert f'"value": ["{CASE}"]' in text


def test_the_charts_of_a_suite_begin_where_it_was_first_measured(tmp_path):
    # A suite that came late had its points in the last tenth of its charts.
    for n in range(8):
        late = [record(suite="kda", latency=level(5e-6))] if n > 5 else []
        write_measurement(tmp_path / "r", [record(), *late], commit=f"{n}" * 40, date=1_000_000 + n)
    results = open_store(tmp_path / "r").current()
    address = FamilyAddress(MACHINE, "kda", (CASE,), "cold", ("latency",), ("splitk",))
    [card] = family_trends.trends(results, address, "light")
    low, high = card.children[1].children[0].figure["layout"]["xaxis"]["range"]
    assert 5 < low < 6
    assert 7 < high < 8


def history(root, commits):
    """Three shapes: one measured at the last commit alone, one that stood still, one that moved."""
    for n in range(commits):
        here = [record(case="M=2,K=8", latency=level(5e-6)), record(case="M=4,K=8", latency=level(5e-6 * (1 + n)))]
        alone = [record(case="M=1,K=8", latency=level(5e-6))] if n == commits - 1 else []
        write_measurement(root, here + alone, commit=f"{n}" * 40, date=1_000_000 + n)
    return open_store(root).current()


def level(seconds):
    return Estimate(seconds, seconds, seconds)


def test_a_curve_is_shown_before_a_point_and_a_long_time_before_a_short_one(tmp_path):
    results = history(tmp_path / "r", 4)
    assert informative_cases(results, MACHINE, "linear", None) == (
        ("M=4,K=8", "cold"),
        ("M=2,K=8", "cold"),
        ("M=1,K=8", "cold"),
    )
    text = words(family.layout(results, FamilyAddress(MACHINE, "linear")))
    assert '"value": ["M=4,K=8", "M=2,K=8"]' in text


def test_a_variant_that_takes_long_in_every_shown_case_is_not_selected(tmp_path):
    """One slow variant made flat lines of all others."""
    times = {"fast": 10e-6, "near": 29e-6, "slow": 31e-6, "best": 40e-6}
    every = {"M=1": times, "M=2": times | {"slow": 12e-6}}
    rows = [record(name, case, latency=level(time)) for case in every for name, time in every[case].items()]
    write_measurement(tmp_path / "r", rows)
    results = open_store(tmp_path / "r").current()
    near = family_trends.near_variants(results, MACHINE, "linear", "cold", ["M=1"])
    assert near == ["best", "fast", "near"]
    assert "slow" in family_trends.near_variants(results, MACHINE, "linear", "cold", ["M=1", "M=2"])


def test_what_became_slower_last_is_shown_first(shown):
    store, findings = shown
    results = store.current()
    found = findings.of_machine(results, FAST)
    slowed = [case for case, _ in informative_cases(results, FAST, "linear", found)[:2]]
    worse = {change.series.case for change in found.changes if change.sense == "worse" and not change.suppressed}
    assert set(slowed) <= worse
    assert len(informative_cases(results, FAST, "linear", found)) == len(
        informative_cases(results, FAST, "linear", None)
    )
    chosen = json.dumps(slowed)
    assert f'"value": {chosen}' in words(family.layout(results, FamilyAddress(FAST, "linear"), found))


def test_a_printed_page_names_the_machine_and_the_variants(shown):
    address = FamilyAddress(FAST, "linear", ("M=8,K=64",), "cold", ("speedup",), ("torch", "triton"))
    text = words(family_trends.printed(shown[0].current(), address))
    assert FAST in text
    assert "torch" in text
    assert "triton" in text


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    """The address, results and repository of a family with two axes, whose ``best`` gains 10 % at the third commit."""
    folder = tmp_path_factory.mktemp("best")
    commits = commits_of(folder / "repo", 4)
    subprocess.run(["git", "tag", "v1.2", commits[2]], cwd=folder / "repo", check=True)
    annotated = ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", "tag", "-a", "-m", "x", "v1.1"]
    subprocess.run([*annotated, commits[1]], cwd=folder / "repo", check=True)
    for n, commit in enumerate(commits):
        gain = 1.1 if n >= 2 else 1.0
        rows = [
            record(
                variant, f"M={M},K=8,N={N}", latency=level(2e-6 / speedup), speedup=level(speedup), check_error=error
            )
            for M in (1, 16)
            for N in (8, 64)
            for variant, speedup, error in (("torch", 1.0, 1e-3), ("best", 2.0 * gain, 2e-3), ("slow", 0.5, 1e-3))
            if n or (M, N) == (1, 8)
        ]
        write_measurement(folder / "results", rows, commit=commit, date=START_MS + n * DAY_MS)
    results = open_store(folder / "results", repo=folder / "repo").current()
    address = FamilyAddress(MACHINE, "linear", ("M=1,K=8,N=8",), "cold", ("speedup",), ("torch", "best", "slow"))
    return results, address, folder / "repo"


def test_the_speedup_of_all_shapes_is_drawn_with_the_releases(best):
    results, address, repo = best
    whole, one = (
        card.children[1].children[0].figure for card in family_trends.trends(results, address, "light", None, repo)
    )
    go.Figure(whole)
    line, releases = whole["data"]
    # Three of the four shapes begin at the second commit, which does not move the line.
    assert (line["x"], line["y"]) == ([0, 1, 2, 3], pytest.approx([2.0, 2.0, 2.2, 2.2]))
    assert (releases["text"], releases["x"]) == (["v1.1", "v1.2"], [0.5, 1.5])
    assert one["data"][-1]["text"] == ["v1.1", "v1.2"]
    assert whole["layout"]["meta"].startswith(f"{MACHINE} · {results.commits(MACHINE)[0].short}..")


def test_the_newest_numbers_are_drawn_over_both_axes_and_over_the_error(best):
    results, address, _ = best
    figures = [card.children[1].children[0].figure for card in family.latest(results, address, "light")[1].children]
    for figure in figures:
        go.Figure(figure)
    [heat] = [figure["data"][0] for figure in figures if figure["data"][0]["type"] == "heatmap"]
    assert (heat["x"], heat["y"]) == (["1", "16"], ["N=8", "N=64"])
    assert heat["text"] == [["2.20", "2.20"]] * 2
    assert "<b>best</b>" in heat["hovertext"][0][0], "the fastest variant, not the baseline"
    [errors] = [figure for figure in figures if "Error" in str(figure["layout"]["yaxis"].get("title"))]
    assert {trace["name"]: trace["y"] for trace in errors["data"]} == {"torch": [1e-3], "best": [2e-3], "slow": [1e-3]}
