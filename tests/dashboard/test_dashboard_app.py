"""The pages answer, their numbers are the files', and whatever an address asks for is met with a page."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from asv.util import UserError
from plotly.offline import get_plotlyjs_version
from served import call as ask
from served import table_of, words
from trees import COMMIT, DATE, MACHINE, every_row, open_store, record, write_measurement

from dashboard.address import FamilyAddress, SeriesAddress, parse
from dashboard.charts.at_commit import sweep, sweep_axis
from dashboard.charts.lines_and_bands import trend
from dashboard.charts.theme import chart_layout, styles
from dashboard.pages import family, family_trends, overview
from dashboard.server.app import PLOTLY, create_app, page
from dashboard.server.command import Dashboard, listen
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.compare.read_rows import newest_rows, rows_over
from lockstep.compare.shown_quantities import QUANTITIES
from lockstep.record.model import Estimate

CASE = "M=8,K=4096,N=2048"
HOSTILE = '<img src=x onerror="alert(1)">'
ADDRESS = FamilyAddress(MACHINE, "linear", (CASE,), "cold", ("latency", "speedup"), ("splitk", "torch"))


def golden(root):
    """Three commits of two variants and three shapes; ``splitk`` is 10 % slower at the last one."""
    for index, digit in enumerate("abc"):
        records = []
        for m in (1, 8, 64):
            latency = (5e-6 if digit != "c" else 5.5e-6) * (1 + m / 64)
            base = {"case": f"M={m},K=4096,N=2048", "floor_s": 3.9e-6 * (1 + m / 64)}
            measured = Estimate(latency, latency * 0.99, latency * 1.01)
            records.append(record(latency=measured, **base))
            torch = Estimate(latency * 1.9, latency * 1.8, latency * 2.0)
            records.append(record(variant="torch", latency=torch, speedup=Estimate(1.0, 1.0, 1.0), **base))
        write_measurement(root, records, commit=digit * 40, date=DATE + index)
    return open_store(root)


@pytest.fixture
def store(tmp_path):
    return golden(tmp_path / "results")


@pytest.fixture
def client(store):
    return create_app(store).server.test_client()


def call(client, output, *values, state=()):
    """What the callback of ``output`` answers."""
    answer = ask(client, output, values, state)
    assert answer.status_code == 200, answer.text
    return answer.json["response"]


def overview_of(client, machine, l2, since="all", quantity="time"):
    """What the overview's callback answers."""
    return call(client, "overview-grid.rowData", machine, l2, since, quantity, "", 0, None)


def test_shapes_of_which_nothing_runs_here_are_left_out(tmp_path):
    small = {"case": "B=1", "state": "na", "reason": "a shape for machines without a GPU", "latency": None}
    failed = {"case": "C=1", "state": "failed", "reason": "wrong", "latency": None}
    rows = [record(**small), record(case="M=8"), record(variant="torch", **{**small, "case": "M=8"}), record(**failed)]
    write_measurement(tmp_path / "results", rows)
    results = open_store(tmp_path / "results").current()
    stood = overview.statuses_of(results, MACHINE, "all", 0, Findings(tmp_path, tmp_path))
    cells = table_of(results, MACHINE, stood)
    shown = list(dict.fromkeys(cell["case"] for cell in cells))
    assert shown == ["C=1", "M=8"]


def test_the_overview_says_what_is_loaded(client):
    assert call(client, "page.children", "/", state=("",))["title"] == {"data": f"{MACHINE} · Lockstep"}
    said = call(client, "overview-said.children", MACHINE, "cold", "all", "time", 0, None)
    assert "cccccccc" in json.dumps(said)


def test_the_table_holds_the_newest_commits_numbers(client):
    answer = overview_of(client, MACHINE, "cold")
    rows = {(row["variant"], row["case"]): row for row in answer["overview-grid"]["rowData"]}
    assert len(rows) == 6
    row = rows["splitk", CASE]
    assert row["latency"] == pytest.approx(5.5 * 1.125)
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == (1.9, 1.87, 1.92)
    assert row["floor"] == pytest.approx(100 * 3.9 / 5.5)
    assert row["bandwidth"] == pytest.approx(16.8e6 / (5.5e-6 * 1.125) / 1e9)
    assert row["mde"] == pytest.approx(0.4)
    assert row["state"] == "ok"
    assert overview_of(client, MACHINE, "warm")["overview-grid"]["rowData"] == []
    assert overview_of(client, "nowhere", "cold")["overview-grid"]["rowData"] == []


def test_a_row_leads_to_its_series(client):
    rows = overview_of(client, MACHINE, "cold")["overview-grid"]["rowData"]
    row = next(row for row in rows if row["case"] == CASE and row["variant"] == "splitk")
    path, _, search = row["href"].partition("?")
    assert parse(path, search) == SeriesAddress(MACHINE, "linear", "splitk", CASE, "cold")


def test_series_missing_at_the_newest_commit_are_stale(store, client):
    write_measurement(store.root, [record()], commit="d" * 40, date=DATE + 9)
    rows = overview_of(client, MACHINE, "cold")["overview-grid"]["rowData"]
    assert sorted(row["commit"][0] for row in rows if row["stale"]) == ["c"] * 5
    assert [row["commit"][0] for row in rows if not row["stale"]] == ["d"]


def test_the_family_page_draws_what_its_address_asks_for(client):
    at, variants, seen, state = ([CASE], "cold"), ["splitk", "torch"], ("light", None), (MACHINE, "linear")
    chosen = (*at, ["latency", "speedup"], variants)
    drawn = call(client, "family-trend.children", *chosen, "", "order", *seen, state=state)["family-trend"]
    assert len(drawn["children"]) == 2
    text = json.dumps(call(client, "family-latest.children", *at, variants, *seen, state=state)["family-latest"])
    assert "6.188" in text
    assert "6.126" in text
    assert "6.249" in text


def test_before_the_colours_are_known_nothing_is_drawn(client):
    state = (MACHINE, "linear")
    answer = call(
        client,
        "family-trend.children",
        [CASE],
        "cold",
        ["latency"],
        ["splitk"],
        "",
        "order",
        None,
        None,
        state=state,
    )
    assert answer == {}


@pytest.mark.parametrize("chosen", [None, []])
def test_an_empty_choice_is_reported(client, chosen):
    answer = call(
        client,
        "family-trend.children",
        chosen,
        "cold",
        chosen,
        chosen,
        None,
        "order",
        "dark",
        None,
        state=(MACHINE, "linear"),
    )
    assert "Choose a variant" in json.dumps(answer["family-trend"])


def rows_of_case(results):
    """Every row of a case."""
    rows = rows_over(results, MACHINE, results.keys(MACHINE).keys)
    return rows.select(np.array([key.case == CASE for key in rows.keys]))


def test_a_trend_holds_the_numbers_and_breaks_at_a_new_benchmark_version(store):
    write_measurement(
        store.root, [record(version="ruler2", latency=Estimate(4e-6, 3.9e-6, 4.1e-6))], commit="d" * 40, date=DATE + 9
    )
    results = store.current()
    figure = trend(rows_of_case(results), results.commits(), QUANTITIES["latency"], styles(["splitk"], set()), "light")
    go.Figure(figure)
    lines = [trace for trace in figure["data"] if trace.get("name") == "splitk"]
    assert [trace["x"] for trace in lines] == [[0, 1, 2], [3]]
    assert lines[0]["y"] == pytest.approx([5.625, 5.625, 6.1875])
    assert lines[1]["y"] == pytest.approx([4.0])
    assert "cccccccc" in lines[0]["text"][2]
    band = figure["data"][0]
    assert band["y"] == pytest.approx(
        [5.625 * 1.01, 5.625 * 1.01, 6.1875 * 1.01, 6.1875 * 0.99, 5.625 * 0.99, 5.625 * 0.99]
    )


def test_a_failure_is_marked_with_its_reason(store):
    failed = record(state="failed", reason="off by <b>0.3</b>", latency=None, speedup=None)
    write_measurement(store.root, [failed], commit="d" * 40, date=DATE + 9)
    results = store.current()
    figure = trend(rows_of_case(results), results.commits(), QUANTITIES["latency"], styles(["splitk"], set()), "dark")
    go.Figure(figure)
    mark = figure["data"][-1]
    assert mark["x"] == [3]
    assert "off by &lt;b&gt;0.3&lt;/b&gt;" in mark["text"][0]


def test_a_quiet_series_is_not_blown_up(store):
    results = store.current()
    rows = rows_of_case(results)
    quiet = rows.select(rows.columns["commit"] != 2)
    figure = trend(quiet, results.commits(), QUANTITIES["latency"], styles(["splitk"], set()), "light")
    low, high = figure["layout"]["yaxis"]["range"]
    assert (high - low) / low > 0.1


def test_the_sweep_goes_over_the_axis_that_varies(store):
    results = store.current()
    rows = list(newest_rows(results, MACHINE))
    axis, alike = sweep_axis([row.case for row in rows], CASE)
    assert axis == "M"
    assert set(alike) == {"M=1,K=4096,N=2048", CASE, "M=64,K=4096,N=2048"}
    figure = sweep(rows, axis, styles(["splitk"], set()), "light")
    go.Figure(figure)
    floor, line = figure["data"]
    assert line["x"] == [1, 8, 64]
    assert line["y"] == pytest.approx([5.5 * (1 + m / 64) for m in (1, 8, 64)])
    assert floor["y"] == pytest.approx([3.9 * (1 + m / 64) for m in (1, 8, 64)])


@pytest.mark.parametrize("label", ["", "backward", "size=large", "M=nan", "M=inf", "M=-3", "M=8"])
def test_without_a_numeric_axis_that_varies_there_is_no_sweep(label):
    assert sweep_axis([label, "M=inf", "M=-3", "x"], label) is None


def test_a_case_keeps_its_colours_whatever_is_chosen():
    every = styles([f"v{index}" for index in range(20)] + ["base"], {"base"})
    assert len({(one.light, one.marker, one.dash) for one in every.values()}) == 21
    assert every["base"].dash == "dash"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_line_stands_out_from_the_card(scheme):
    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    # WCAG 2.2, 1.4.11: graphics need 3:1.
    card = luminance(chart_layout(scheme)["hoverlabel"]["bgcolor"])
    for style in styles([f"v{index}" for index in range(8)] + ["base"], {"base"}).values():
        line = luminance(style.colour(scheme))
        assert (max(card, line) + 0.05) / (min(card, line) + 0.05) >= 3, style


def test_an_address_restores_what_it_was_made_of():
    address = FamilyAddress("a/b c?&=%é", "x.y", ("M=8,N=2", "a&b"), "warm", ("speedup",), ("+", "#"), "-0.5,12.25")
    path, _, search = address.link().partition("?")
    assert parse(path, f"?{search}") == address


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/family",
        "/family/a",
        "/family/a/b/c",
        f"/family/{MACHINE}/nothing",
        f"/family/{HOSTILE}/linear",
        "/family/%ff/%00",
        "//",
    ],
)
def test_a_wrong_address_is_met_with_a_page(client, path):
    answer = call(client, "page.children", path, state=("?case=%ff&l2=%00&variants=" + "x&variants=" * 500,))
    assert re.search("no such page|has no results", json.dumps(answer["page"]))


def test_another_machine_is_offered_where_one_has_none(store):
    shown, title = page(store, "/family/elsewhere/linear", "")
    assert MACHINE in words(shown)
    assert title == "linear on elsewhere"


def test_choices_that_do_not_exist_are_replaced(store):
    address = FamilyAddress(MACHINE, "linear", ("M=3",), "hot", ("beauty",), ("nobody",))
    text = words(family.layout(store.current(), address))
    assert '"value": ["latency", "speedup"]' in text
    assert '"value": ["splitk", "torch"]' in text
    assert '"value": "cold"' in text


def test_an_empty_folder_says_what_to_run(tmp_path):
    shown, _ = page(open_store(tmp_path / "results"), "/", "")
    assert "lockstep run HEAD" in words(shown)


def test_a_folder_of_broken_files_says_what_is_wrong(tmp_path):
    path = write_measurement(tmp_path, [record()])
    path.write_text("<html>")
    text = words(page(open_store(tmp_path), "/", "")[0])
    assert "can be read" in text
    assert path.name in text
    assert "is not JSON" in text


def test_hostile_names_reach_the_charts_escaped(tmp_path):
    write_measurement(tmp_path, [record(variant=HOSTILE, case=HOSTILE, note=HOSTILE)])
    results = open_store(tmp_path).current()
    assert every_row(results)[0].variant == HOSTILE
    address = FamilyAddress(MACHINE, "linear", (HOSTILE,), "cold", ("latency",), (HOSTILE,))
    [card] = family_trends.trends(results, address, "light")
    figure = card.children[1].children[0].figure
    shown = [text for trace in figure["data"] for text in [trace.get("name", ""), *trace.get("text", [])]]
    assert sum("&lt;img" in text for text in shown) == 2
    assert not any("<img" in text for text in shown)


def test_answers_forbid_foreign_scripts_and_frames(client):
    answer = client.get("/")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self' 'sha256-" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_nothing_in_the_page_is_loaded_from_elsewhere(client):
    loaded = re.findall(r'(?:src|href)="([^"]*)"', client.get("/").text)
    assert loaded
    assert [one for one in loaded if not one.startswith("/")] == []
    for one in loaded:
        assert client.get(one).status_code == 200, one


def test_new_results_show_without_a_restart(store, client):
    write_measurement(store.root, [record(latency=Estimate(7e-6, 6.9e-6, 7.1e-6))], commit="d" * 40, date=DATE + 9)
    rows = overview_of(client, MACHINE, "cold")["overview-grid"]["rowData"]
    assert [row["latency"] for row in rows if not row["stale"]] == pytest.approx([7.0])


def test_a_taken_port_is_refused_with_advice():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match=r"is in use.*--port"):
        listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(("host", "port"), [("203.0.113.1", 8050), ("127.0.0.1", 70000), ("no.such.host.invalid", 0)])
def test_an_impossible_address_is_refused(host, port):
    with pytest.raises(UserError, match=r"cannot serve|a port is"):
        listen(host, port)


def options(*arguments):
    parser = ArgumentParser()
    Dashboard.setup_arguments(parser.add_subparsers())
    args = parser.parse_args(["dashboard", *arguments])
    args.config = None
    return args


def test_the_verb_refuses_before_it_loads_anything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        args = options("--port", str(taken.getsockname()[1]))
        with pytest.raises(UserError, match="is in use"):
            args.func(args)


@pytest.mark.parametrize("configured", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_the_verb_serves_and_ends(tmp_path, configured):
    results = tmp_path / ("elsewhere" if configured else "results")
    write_measurement(results, [record()])
    if configured:
        (tmp_path / "asv.conf.json").write_text('{"version": 1, "repo": ".", "results_dir": "elsewhere"}')
    program = (
        "import argparse, sys\n"
        "from dashboard.server.command import Dashboard\n"
        "parser = argparse.ArgumentParser()\n"
        "Dashboard.setup_arguments(parser.add_subparsers())\n"
        "args = parser.parse_args(['dashboard', '--port', '0'])\n"
        "args.config = None\n"
        "sys.exit(args.func(args))"
    )
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    errors = tmp_path / "errors.txt"
    with errors.open("w") as stderr:
        server = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        address = re.search(r"http://\S+/", server.stdout.readline()).group()
        outputs = ["overview-grid.rowData", "overview-more.children"]
        inputs = {
            "overview-machine": MACHINE,
            "overview-l2": "cold",
            "overview-since": "all",
            "overview-quantity": "time",
            "overview-search": "",
        }
        body = {
            "output": f"..{'...'.join(outputs)}..",
            "outputs": [dict(zip(("id", "property"), one.split("."), strict=True)) for one in outputs],
            "inputs": [{"id": name, "property": "value", "value": value} for name, value in inputs.items()]
            + [{"id": name, "property": "data", "value": None} for name in ("visit", "version")],
            "state": [],
            "changedPropIds": ["overview-machine.value"],
        }
        request = urllib.request.Request(
            f"{address}_dash-update-component", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        # At once: it listens before it says where, and who comes early waits.
        with urllib.request.urlopen(request, timeout=120) as response:
            answer = json.load(response)
        [row] = answer["response"]["overview-grid"]["rowData"]
        assert row["latency"] == pytest.approx(5.0)
        assert COMMIT[:8] in json.dumps(answer)
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        server.stdout.close()
    # DuckDB reports what was not freed.
    assert "leaked" not in errors.read_text()


def test_charts_load_the_part_of_plotly_that_draws_them(client):
    answer = client.get("/_dash-component-suites/plotly/package_data/plotly.min.js")
    assert (answer.status_code, answer.mimetype) == (200, "text/javascript")
    assert answer.data == PLOTLY.read_bytes()
    assert len(answer.data) < 1_600_000
    # Asked for again it is not sent again.
    assert client.get(answer.request.path, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304


def test_that_part_is_of_the_version_that_the_package_brings_and_as_its_maker_left_it():
    assert PLOTLY.name == f"plotly-cartesian-{get_plotlyjs_version()}.min.js"
    digest = hashlib.sha256(PLOTLY.read_bytes()).hexdigest()
    assert f"| `{digest}` |" in (PLOTLY.parent / "README.md").read_text(encoding="utf-8")
