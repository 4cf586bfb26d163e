"""One series: its points, its changes with their causes, what stands beside them, and the address that restores it."""

from dataclasses import replace

import plotly.graph_objects as go
import pytest
from served import words
from showcase import COMMITS, FAST, SLOW
from test_dashboard_app import CASE, call, golden
from test_pages_overview import shown
from trees import DATE, MACHINE, open_store, record, write_measurement

from dashboard.address import FamilyAddress, SeriesAddress, parse
from dashboard.charts.axes import visible_range
from dashboard.charts.series_figure import series_figure
from dashboard.pages import family, series, series_data
from dashboard.pages.series_data import commit_table, series_commands
from dashboard.server.app import create_app, page
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.compare.series_of_suite import keys_of
from lockstep.record.model import Accuracy, Clocks

__all__ = ["shown"]

ACCURACY = Accuracy(3e-4, 5e-4, 4e-4, 4e-4, 3e-4, 6e-4, 0.0)

ONE_CASE = SeriesAddress(MACHINE, "linear", "splitk", CASE, "cold")
ONE = SeriesAddress(FAST, "linear", "triton", "M=8,K=64", "cold")


def view(shown, address):
    store, findings = shown
    results = store.current()
    return results, series_data.view(results, address, findings.of_machine(results, address.machine))


def test_a_series_shows_its_change_with_the_commit_and_the_cause(shown):
    _, seen = view(shown, ONE)
    assert seen.what.name == "speedup"
    [found] = seen.changes
    assert found.cause.kind == "own commit"
    figure = series_figure(seen, "light")
    go.Figure(figure)
    [mark] = [trace for trace in figure["data"] if trace.get("mode") == "text"]
    assert (mark["text"], mark["x"]) == (["▼ +6.9 %"], [39.5])
    for told in ("own commit", "Commit 40"):
        assert told in mark["hovertext"][0]
    # Two levels, without a slope between them.
    before, after = (trace for trace in figure["data"] if trace.get("name") == "triton")
    numbers = [number.value for _, number in seen.points]
    assert before["y"] + after["y"] == pytest.approx(numbers)
    assert (before["x"], after["x"]) == (list(range(40)), list(range(40, COMMITS)))
    text = words(series.changes(seen))
    assert "Commit 40" in text
    assert "matmul machine code changed" in text


def test_the_text_of_a_mark_is_on_the_side_with_more_room(shown):
    results, seen = view(shown, ONE)
    [found] = seen.changes
    commits = results.commits(FAST)
    near = tuple(replace(found, commit=commits[at].hash) for at in (10, 55))
    figure = series_figure(replace(seen, changes=near), "light")
    go.Figure(figure)
    [mark] = [trace for trace in figure["data"] if trace.get("mode") == "text"]
    assert mark["textposition"] == ["middle right", "middle left"]


def test_the_machine_code_of_each_commit_stands_below(shown):
    _, seen = view(shown, ONE)
    figure = series_figure(seen, "dark")
    [code] = [trace for trace in figure["data"] if trace.get("yaxis") == "y2"]
    assert set(code["y"]) == {168}
    changed = [x for x, text in zip(code["x"], code["text"], strict=True) if "code changed" in text]
    assert changed == [0, COMMITS * 2 // 3]
    assert "49152 B shared" in code["text"][0]


def test_a_new_toolchain_is_a_line_and_the_cause(shown):
    address = SeriesAddress(SLOW, "kda", "triton", "M=1,K=64", "cold")
    _, seen = view(shown, address)
    [mark] = [trace for trace in series_figure(seen, "light")["data"] if trace["mode"] == "text"]
    gain, tool = mark["text"]
    assert (gain.startswith("▲ −10."), tool) == (True, "triton 3.7.1")
    assert "toolchain" in mark["hovertext"][0]
    assert "triton 3.6.0 → 3.7.1" in mark["hovertext"][1]
    assert mark["y"][0] > mark["y"][1], "the version stands below the change at the same commit"


def test_a_failure_is_marked_and_listed(shown):
    address = SeriesAddress(FAST, "linear", "triton", "M=64,K=64", "cold")
    _, seen = view(shown, address)
    traces = series_figure(seen, "light")["data"]
    [crosses] = [trace for trace in traces if trace.get("marker", {}).get("symbol") == "x-thin"]
    assert crosses["x"] == [COMMITS - 1]
    assert "wrong result: 0.3 off" in words(commit_table(seen))


def test_the_facts_say_how_far_a_number_can_be_trusted(shown):
    _, seen = view(shown, ONE)
    text = words(series.facts(seen, None))
    assert "run to run, of the speedup" in text
    assert "detected within three commits" in text
    assert f'"children": "{COMMITS}"' in text


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({"check_error": 3e-4, "accuracy": ACCURACY, "deterministic": True}, "worst row 5.0e-04, deterministic"),
        ({"check_error": 3e-4, "deterministic": False}, '"not deterministic"'),
        ({"check_error": 3e-4}, '"3.0e-04"'),
    ],
)
def test_the_facts_have_the_newest_accuracy_and_whether_bits_repeat(tmp_path, known, told):
    write_measurement(tmp_path / "r", [record(**known)], commit="a" * 40, date=1_790_000_000_000)
    results = open_store(tmp_path / "r").current()
    address = SeriesAddress(MACHINE, "linear", "splitk", CASE, "cold", "latency")
    text = words(series.facts(series_data.view(results, address, None), None))
    assert "Error of the newest check" in text
    assert told in text


def test_clocks_and_temperature_share_the_axis(tmp_path):
    for place, digit in enumerate("ab"):
        clocks = Clocks(1500.0 - 10 * place, 1480.0, 50.0 + place, 400.0, ("power cap",) if place else ())
        write_measurement(tmp_path / "r", [record(clocks=clocks)], commit=digit * 40, date=1_790_000_000_000 + place)
    results = open_store(tmp_path / "r").current()
    address = SeriesAddress(MACHINE, "linear", "splitk", CASE, "cold", "latency")
    figure = series_figure(series_data.view(results, address, None), "light")
    beside = {trace["yaxis"]: trace for trace in figure["data"] if trace.get("yaxis") in ("y2", "y3")}
    assert beside["y2"]["y"] == [1500.0, 1490.0]
    assert "power cap" in beside["y2"]["text"][1]
    assert beside["y3"]["y"] == [50.0, 51.0]


@pytest.mark.parametrize(("zoom", "place"), [((), COMMITS - 1), ((10.5, 42.0), 42)])
def test_the_commands_measure_the_newest_number_in_view(shown, zoom, place):
    results, seen = view(shown, ONE)
    commits = results.commits(FAST)
    text = words(series_commands(results, seen, zoom))
    assert f"lockstep run '{commits[place].hash[:12]}^!' --dry-run --bench" in text
    assert "linear.speedup" in text.replace("\\", "")
    assert "lockstep measure linear --case M=8,K=64 --variants triton --l2 cold" in text
    assert "# measured with NVIDIA H200; " in text
    assert series_commands(results, replace(seen, points=()), ()) == []


def test_the_page_answers_and_its_address_restores_it(shown):
    address = SeriesAddress(FAST, "linear", "triton", "M=8,K=64", "cold", "latency", "10.5,42")
    path, _, search = address.link().partition("?")
    assert parse(path, f"?{search}") == address
    store, findings = shown
    client = create_app(store, findings=findings).server.test_client()
    kept = vars(address)
    answer = call(client, "series-facts.children", "latency", "10.50,42.00", "order", "light", None, state=(kept,))
    assert answer["series-chart"]["figure"]["layout"]["xaxis"]["range"] == [10.5, 42.0]
    assert "Latency \\u00b5s" in str(answer).encode("unicode_escape").decode().replace("\\xb5", "\\u00b5")


@pytest.mark.parametrize("zoom", ["", "1", "2,1", "a,b", "nan,1", "1,2,3", "-inf,inf"])
def test_a_zoom_that_is_none_shows_all(zoom):
    assert visible_range(parse("/series/m/s", f"?zoom={zoom}").zoom, "", ()) == ()


def test_a_series_that_is_not_there_says_where_it_is(tmp_path):
    store = golden(tmp_path / "results")
    link = SeriesAddress("elsewhere", "linear", "splitk", CASE, "cold").link()
    shown, _ = page(store, *link.split("?", 1))
    assert MACHINE in words(shown)
    nowhere, _ = page(store, "/series/a/b", "?case=%3Cimg%3E")
    assert "a has no series b <img>" in words(nowhere)


def test_a_benchmark_without_cases_has_its_name_as_the_title_and_says_nothing_of_provenance(shown):
    results = shown[0].current()
    address = SeriesAddress("laptop", "index.track_depth")
    [crumbs, *_] = series.layout(results, address).children
    assert [part.children for part in crumbs.children] == ["Overview", " / ", "index.track_depth"]
    seen = series_data.view(results, address, None)
    assert "provenance" not in words(series_data.commit_table(seen))
    assert "0 without" not in words(series.facts(seen, None))
    layout = words(family.layout(results, FamilyAddress("laptop", "index.track_depth")))
    assert "provenance" not in words(
        family.latest(results, FamilyAddress("laptop", "index.track_depth", variants=("",)), "light")
    )
    assert layout.count('"hidden": true') >= 2, "nothing to choose among one variant and one quantity"


def test_before_the_analysis_is_there_the_page_says_so(tmp_path):
    store = golden(tmp_path / "results")
    results = store.current()
    address = SeriesAddress(MACHINE, "linear", "splitk", CASE, "cold")
    assert "looking for changes" in words(series.facts(series_data.view(results, address, None), None))
    assert Findings(store.cache, tmp_path).of_machine(results, "nowhere") is None


def test_the_table_tells_a_lower_speedup_as_more_time(shown):
    """As the chart above it and every other page: the step that the detector calls +7 % is +7 % here."""
    address = SeriesAddress(FAST, "linear", "triton", "M=8,K=64", "cold")
    _, seen = view(shown, address)
    zoom = (COMMITS * 2 // 3 - 0.5, COMMITS * 2 // 3 + 0.5)
    [table] = commit_table(seen, zoom)
    assert '"children": "+6.' in words(table) or '"children": "+7.' in words(table)


def error_at(tmp_path, *errors):
    """The page of a series whose checks had these errors, its chart of them, and the results."""
    for place, error in enumerate(errors):
        write_measurement(tmp_path / "r", [record(check_error=error)], commit=f"{place + 1:x}" * 40, date=DATE + place)
    results = open_store(tmp_path / "r").current()
    address = SeriesAddress(MACHINE, "linear", "splitk", CASE, "cold", "error")
    seen = series_data.view(results, address, None)
    return seen, series_figure(seen, "light"), results


def test_the_error_of_the_check_is_charted_over_the_commits(tmp_path):
    seen, figure, results = error_at(tmp_path, 1.6e-3, 1.7e-3, 8e-3)
    assert [(number.value, number.low) for _, number in seen.points] == [(1.6e-3, None), (1.7e-3, None), (8e-3, None)]
    [line] = [trace for trace in figure["data"] if trace.get("name") == "splitk"]
    assert line["y"] == [1.6e-3, 1.7e-3, 8e-3]
    assert "<b>8.000e-03</b>" in line["text"][-1]
    assert {"2e-03", "5e-03"} <= set(figure["layout"]["yaxis"]["ticktext"])
    [key] = keys_of(results, "linear")
    assert "error" in [one.name for one in series_data.offered_quantities(results, key)]


def test_an_error_of_zero_is_a_point_and_an_unknown_one_none(tmp_path):
    seen, figure, _ = error_at(tmp_path, 0.0, None, 0.0)
    assert [number and number.value for _, number in seen.points] == [0.0, None, 0.0]
    assert "log" not in str(figure["layout"]["yaxis"].get("type"))


def test_a_gain_is_not_drawn_in_the_colour_of_a_slowdown(shown):
    _, seen = view(shown, ONE)
    [found] = seen.changes
    orange = {"#B04A00", "#FF9A5C"}
    gain = replace(seen, changes=(replace(found, size=-found.size, low=-found.high, high=-found.low),))
    for drawn, coloured in ((seen, True), (gain, False)):
        [mark] = [one for one in series_figure(drawn, "light")["data"] if one["mode"] == "text"]
        assert (mark["textfont"]["color"][0] in orange) == coloured
        text = words(series.changes(drawn))
        assert any(colour in text for colour in orange) == coloured
