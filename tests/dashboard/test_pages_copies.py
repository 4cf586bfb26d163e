"""Copies of the same work are hollow, a move to another GPU breaks the line, and commits may stand at their dates."""

import base64

import numpy as np
import plotly.graph_objects as go
import pytest
from history import CASES, Here, commits_of, write_history
from served import words
from trees import open_store

from dashboard.address import FamilyAddress, SeriesAddress, parse
from dashboard.charts import lines_and_bands as chart
from dashboard.charts import series_figure as series_chart
from dashboard.charts.axes import sourced, visible_range
from dashboard.charts.theme import styles
from dashboard.pages import family_trends, series_data
from dashboard.pages.series_data import commit_table
from lockstep.history.model import Commit

LENGTH, COPIED, MOVED = 12, 4, 8
OLD, NEW = (f"GPU-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "ab")
DAY = 86_400_000


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("copies")
    commits = commits_of(root / "repo", LENGTH)

    def plan(n):
        return Here(host={"gpu_uuid": NEW if n >= MOVED else OLD}, copies=COPIED - 1 if n == COPIED else None)

    write_history(root / "results", "gpu", commits, plan)
    return open_store(root / "results", repo=root / "repo").current()


def numbers(values):
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), dtype=f"<{values['dtype']}").tolist()
    return values


def trend(results, **choices):
    address = FamilyAddress("gpu", "linear", CASES[:1], "cold", ("speedup",), ("triton",), **choices)
    [card] = family_trends.trends(results, address, "light")
    figure = card.children[1].children[0].figure
    go.Figure(figure)
    return figure


def test_a_trend_is_hollow_at_a_copy_and_breaks_at_a_move(results):
    before, after = (trace for trace in trend(results)["data"] if trace.get("name") == "triton")
    assert (before["x"], after["x"]) == (list(range(MOVED)), list(range(MOVED, LENGTH)))
    hollow = [at for at, symbol in zip(before["x"], before["marker"]["symbol"], strict=True) if "open" in symbol]
    assert hollow == [COPIED]
    source = results.commits("gpu")[COPIED - 1].short
    assert f"same work as {source} (not timed again)" in before["text"][COPIED]
    assert isinstance(after["marker"]["symbol"], str)


def test_hollow_points_are_explained_only_where_some_are(results, monkeypatch):
    def explained():
        notes = trend(results)["layout"].get("annotations", ())
        return [note["text"] == "hollow: same work as another commit, not timed again" for note in notes]

    assert explained() == [True]
    monkeypatch.setattr(family_trends, "LONG", 0)
    monkeypatch.setattr(chart, "MARKED", 8)
    assert explained() == [], "a long line has no markers"


def test_a_chart_keeps_its_notes_beside_the_one_on_hollow_points():
    figure = {"data": [], "layout": {"annotations": [{"text": "floor"}], "margin": {"t": 40}}}
    chart.explain_hollow(figure, "light")
    assert [note["text"].split(":")[0] for note in figure["layout"]["annotations"]] == ["floor", "hollow"]
    assert figure["layout"]["annotations"][1]["xanchor"] == "left", "the buttons that save the chart are on the right"
    assert figure["layout"]["margin"]["t"] == 40


def test_only_copies_are_hollow_and_a_baseline_that_was_measured_is_not(results):
    assert "open" not in styles(["torch"], {"torch"})["torch"].marker
    address = FamilyAddress("gpu", "linear", CASES[:1], "cold", ("latency",), ("torch",))
    [card] = family_trends.trends(results, address, "light")
    before, _ = (trace for trace in card.children[1].children[0].figure["data"] if trace.get("name") == "torch")
    assert [at for at, symbol in enumerate(before["marker"]["symbol"]) if "open" in symbol] == [COPIED]


def test_a_long_series_has_markers_where_it_is_zoomed(results, monkeypatch):
    monkeypatch.setattr(series_chart, "MARKED", 8)
    monkeypatch.setattr(chart, "MARKED", 8)
    address = SeriesAddress("gpu", "linear", "triton", CASES[0], "cold")

    def modes(zoom):
        shown = series_data.view(results, address, None)
        figure = series_chart.series_figure(shown, "light", zoom)
        return [trace["mode"] for trace in figure["data"] if trace.get("name") == "triton"]

    # The dots are at the measurements between copies.
    assert set(modes(())) == {"lines", "markers"}
    assert modes((1.0, 5.0)) == ["lines+markers"] * 2


def test_a_long_trend_has_dots_at_its_measurements(results, monkeypatch):
    monkeypatch.setattr(family_trends, "LONG", 0)
    monkeypatch.setattr(chart, "MARKED", 8)
    line, dots, after = (trace for trace in trend(results)["data"] if trace.get("name") == "triton")
    assert (line["mode"], numbers(line["x"])) == ("lines", list(range(MOVED)))
    assert (dots["mode"], numbers(dots["x"])) == ("markers", [at for at in range(MOVED) if at != COPIED])
    assert "same work as" in line["text"][COPIED]
    assert numbers(after["x"]) == list(range(MOVED, LENGTH))
    before, after = (one for one in trend(results, zoom="1,5")["data"] if one.get("name") == "triton")
    assert before["mode"] == after["mode"] == "lines+markers"
    assert [at for at, symbol in enumerate(before["marker"]["symbol"]) if "open" in symbol] == [COPIED]


def test_a_series_names_copies_and_the_gpu_to_which_it_moved(results):
    address = SeriesAddress("gpu", "linear", "triton", CASES[0], "cold")
    shown = series_data.view(results, address, None)
    figure = series_chart.series_figure(shown, "light")
    go.Figure(figure)
    before, after = (trace for trace in figure["data"] if trace.get("name") == "triton")
    assert (len(before["y"]), len(after["y"])) == (MOVED, LENGTH - MOVED)
    assert [at for at, symbol in enumerate(before["marker"]["symbol"]) if "open" in symbol] == [COPIED]
    assert [trace["text"] for trace in figure["data"] if trace["mode"] == "text"] == [["another GPU, bbbbbbbb"]]
    assert len(figure["layout"]["annotations"]) == 1
    text = words(commit_table(shown))
    assert text.count(f"same work as {results.commits('gpu')[COPIED - 1].short}") == 1


def test_commits_stand_at_their_dates(results):
    ordered, dated = trend(results), trend(results, axis="date")
    for one, other in zip(ordered["data"], dated["data"], strict=True):
        # A commit a day: both axes are the same but for their labels.
        assert numbers(other["x"]) == pytest.approx(numbers(one["x"]), abs=1e-3)
    assert dated["layout"]["xaxis"]["ticktext"][0] == "2020-09-13"
    assert len(dated["layout"]["xaxis"]["ticktext"]) == 4


def test_a_zoom_by_date_shows_the_commits_of_these_dates():
    """Nine commits on the first day, one after a hundred days."""
    commits = [Commit(f"{n:040x}", n * DAY // 10 if n < 9 else 100 * DAY) for n in range(10)]
    figure = {
        "data": [{"x": list(range(10)), "y": [1.0] * 10}, {"x": [8.5, None, 9], "y": [1, None, 1]}],
        "layout": {"xaxis": {"range": [-0.4, 9.4]}, "shapes": [{"x0": 8, "x1": 8}, {"xref": "paper", "x0": 1}]},
    }
    moved = sourced(figure, "gpu", commits, "date")
    places = moved["data"][0]["x"]
    assert places[0] == 0
    assert places[9] == 9
    assert places[8] < 1 < places[9]
    assert places == sorted(places)
    assert moved["data"][1]["x"][1] is None
    assert moved["layout"]["shapes"][0]["x0"] == pytest.approx(places[8], abs=1e-3)
    assert moved["layout"]["shapes"][1]["x0"] == 1
    assert visible_range(f"{places[3]},{places[9]}", "date", commits) == pytest.approx((3, 9), abs=0.02)
    assert visible_range("", "date", commits) == ()


def test_the_axis_is_in_the_address():
    link = FamilyAddress("gpu", "linear", axis="date")
    assert parse(*link.link().split("?")) == link
    link = SeriesAddress("gpu", "linear", "triton", "c", "cold", axis="date")
    assert parse(*link.link().split("?")) == link
