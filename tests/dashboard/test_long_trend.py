"""Long trends are drawn from arrays; the numbers are those of the short ones."""

import base64

import numpy as np
import pytest
from history import CASES, Here, commits_of, write_history
from trees import open_store

from dashboard.address import FamilyAddress
from dashboard.pages import family_trends

LENGTH = 20


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("long")
    commits = commits_of(root / "repo", LENGTH)
    write_history(root / "results", "h200", commits, lambda n: Here(version="ruler1" if n < 12 else "ruler2"))
    return open_store(root / "results", repo=root / "repo").current()


def lines(results, quantity, zoom=""):
    """Runs of every line of the chart as a page has it: name, places, values."""
    address = FamilyAddress("h200", "linear", CASES[:1], "cold", (quantity,), ("torch", "triton"), zoom)
    [card] = family_trends.trends(results, address, "light")
    traces = card.children[1].children[0].figure["data"]
    return [(one["name"], unpacked(one["x"]), unpacked(one["y"])) for one in traces if "name" in one]


def unpacked(values):
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), dtype=f"<{values['dtype']}").tolist()
    return values


@pytest.mark.parametrize("quantity", ["latency", "speedup"])
def test_the_same_lines_break_at_the_same_places(results, quantity, monkeypatch):
    short = lines(results, quantity)
    monkeypatch.setattr(family_trends, "LONG", 0)
    long = lines(results, quantity)
    assert [(name, list(x)) for name, x, _ in long] == [(name, list(x)) for name, x, _ in short]
    assert {x[0] for _, x, _ in long} == {0, 12}
    for (_, _, ours), (_, _, theirs) in zip(long, short, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_a_chart_with_few_columns_has_points_of_the_line_and_all_of_them_where_it_is_zoomed(results, monkeypatch):
    monkeypatch.setattr(family_trends, "LONG", 0)
    every = {(name, x, y) for name, xs, ys in lines(results, "latency") for x, y in zip(xs, ys, strict=True)}
    monkeypatch.setattr(family_trends, "_COLUMNS_ALONE", 3)
    thin = {(name, x, y) for name, xs, ys in lines(results, "latency") for x, y in zip(xs, ys, strict=True)}
    assert thin < every
    assert {x for _, x, _ in thin} >= {0, 11, 12, LENGTH - 1}
    near = {x for _, xs, _ in lines(results, "latency", "4,6") for x in xs}
    assert near == {2, 3, 4, 5, 6, 7, 8}
