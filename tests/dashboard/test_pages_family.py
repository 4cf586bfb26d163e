"""The family page: marks of what was found, relative trends, the roofline, and another project's units."""

import plotly.graph_objects as go
import pytest
from served import words
from showcase import COMMITS, FAST
from test_dashboard_app import CASE, golden
from test_pages_overview import shown
from trees import MACHINE, open_store, record, write_measurement

from dashboard.address import FamilyAddress
from dashboard.charts.roofline import roofline
from dashboard.charts.theme import styles
from dashboard.pages import family
from dashboard.pages.default_cases import informative_cases
from lockstep.compare.read_rows import newest_rows
from lockstep.record.model import Estimate

__all__ = ["shown"]


def charts(shown, address, scheme="light"):
    store, findings = shown
    results = store.current()
    cards = family.trends(results, address, scheme, findings.of_machine(results, address.machine))
    return [card.children[1].children[0].figure for card in cards]


def test_a_change_is_marked_with_its_commit_and_cause(shown):
    address = FamilyAddress(FAST, "linear", ("M=8,K=64",), "cold", ("speedup",), ("torch", "triton"))
    [figure] = charts(shown, address)
    go.Figure(figure)
    signs = figure["data"][-1]
    assert (signs["text"], signs["x"]) == (["▼"], [COMMITS * 2 / 3 - 0.5])
    for part in ("triton", "+6.9 %", "own commit", "Commit 40", "code changed"):
        assert part in signs["hovertext"][0]


def test_a_relative_trend_begins_at_one(shown):
    address = FamilyAddress(FAST, "linear", ("M=8,K=64",), "cold", ("relative",), ("triton",))
    [figure] = charts(shown, address)
    [line] = [trace for trace in figure["data"] if trace.get("name") == "triton"]
    assert line["y"][0] == 1.0
    assert line["y"][-1] == pytest.approx(1.07, abs=0.02)


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


def history(root, commits):
    """Three shapes: one measured at the last commit alone, one that stood still, one that moved."""
    for n in range(commits):
        here = [record(case="M=2,K=8", latency=level(5e-6)), record(case="M=4,K=8", latency=level(5e-6 * (1 + n)))]
        alone = [record(case="M=1,K=8", latency=level(5e-6))] if n == commits - 1 else []
        write_measurement(root, here + alone, commit=f"{n}" * 40, date=1_000_000 + n)
    return open_store(root).current()


def level(seconds):
    return Estimate(seconds, seconds, seconds)


def test_a_curve_is_shown_before_a_point_and_a_step_before_a_flat_line(tmp_path):
    results = history(tmp_path / "r", 4)
    assert informative_cases(results, MACHINE, "linear") == (
        ("M=4,K=8", "cold"),
        ("M=2,K=8", "cold"),
        ("M=1,K=8", "cold"),
    )
    text = words(family.layout(results, FamilyAddress(MACHINE, "linear")))
    assert '"value": ["M=2,K=8", "M=4,K=8"]' in text
