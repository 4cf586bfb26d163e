"""An alert's chart and table have one zero, the detector's level, and the newest points stand beside that level."""

import json
import math
from dataclasses import replace

import pytest
from history import commits_of, write_foreign
from served import words

from dashboard.address import SeriesAddress
from dashboard.charts.alert_chart import member_chart
from dashboard.charts.axes import commit_axis
from dashboard.pages import series_data
from dashboard.pages.alert import body
from lockstep.alerts.analysis.analyse_and_publish import analyse_store
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.analysis.member_levels import member_levels
from lockstep.alerts.database.alert_row import Tracked
from lockstep.compare.series_status import keys_by_name
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

#: The series has numbers from this commit on, is a little faster for five commits, then slower; the last two are back.
LENGTH, BEGIN, LUCKY, AT, BACK = 64, 24, 41, 46, 62

NAME = "sorting.TimeSort.time_sort"


def seconds(n):
    return 1e-3 * (0.988 if LUCKY <= n < AT else 1.06 if AT <= n < BACK else 1.0)


def tracked(alert):
    return Tracked(1, alert.fingerprint, alert, "new", "", None, 0, 0)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Results, the alert of the slowdown, and what was found on the machine."""
    folder = tmp_path_factory.mktemp("levels")
    commits = commits_of(folder / "repo", LENGTH)
    root = folder / "repo" / "results"
    write_foreign(root, "lab", commits, seconds, requirements=lambda n: {"numpy": "2"})
    listed = json.loads((root / "benchmarks.json").read_text())
    other = {"sorting.TimeSort.time_other": listed[NAME] | {"name": "sorting.TimeSort.time_other"}}
    (root / "benchmarks.json").write_text(json.dumps(listed | other))
    for file in (root / "lab").glob("*-*.json"):
        content = json.loads(file.read_text())
        if content["commit_hash"] in commits[:BEGIN]:
            # The benchmark did not exist yet; another one did.
            results = {"sorting.TimeSort.time_other": content["results"][NAME]}
            file.write_text(json.dumps(content | {"results": results}))
    store = Store.open(root, cache=folder / "cache")
    results, found = analyse_store(store, Thresholds(), root, ())
    [alert] = [one for one in found.alerts if one.topic == "slower" and one.members]
    picture = Findings(store.cache, root).of_machine(results, "lab")
    assert picture is not None
    return results, alert, picture


def test_the_chart_has_the_zero_of_the_table(here):
    results, alert, picture = here
    levels = member_levels(results, alert, picture, 100)
    assert set(levels) == {one.series for one in alert.members}
    figure = member_chart(results, alert, "light", levels)
    for line, member in zip(figure["data"], alert.members, strict=True):
        slow = sorted(y for x, y in zip(line["x"], line["y"], strict=True) if x is not None and AT <= x < BACK)
        # Sixteen points that scatter by 0.4 % have a median within 0.3 % of their level.
        assert slow[len(slow) // 2] == pytest.approx(100 * math.expm1(member.size), abs=0.4)


def test_an_alert_whose_newest_points_are_back_says_so(here):
    results, alert, picture = here
    levels = member_levels(results, alert, picture, 100)
    for member in alert.members:
        assert member.left == pytest.approx(member.size)
        assert levels[member.series].returned == 2
        assert abs(levels[member.series].newest) < 0.02
    page = words(body(tracked(alert), results, "light", (), levels))
    assert "The newest 2 points of the worst series are nearer to the level before the change" in page
    assert "Time against the level before the change" in page


def test_without_the_detectors_levels_the_chart_says_what_its_zero_is(here):
    results, alert, _ = here
    assert member_levels(results, alert, None, 100) == {}
    page = words(body(tracked(alert), results, "light"))
    assert "Time against the median of the last 5 points before the range" in page
    assert "nearer to the level" not in page


def test_a_chart_begins_where_its_series_begin(here):
    results, alert, picture = here
    figure = member_chart(results, alert, "light", member_levels(results, alert, picture, 100))
    assert figure["layout"]["xaxis"]["range"][0] == BEGIN - 0.4
    assert min(figure["layout"]["xaxis"]["tickvals"]) >= BEGIN


def test_the_page_of_a_series_begins_where_the_series_begins(here):
    results, alert, picture = here
    name = alert.members[0].series
    address = SeriesAddress(*keys_by_name(results, "lab")[name])
    figure = series_data.chart(results, address, series_data.view(results, address, picture), "light")
    assert figure["layout"]["xaxis"]["range"][0] == BEGIN - 0.4
    zoomed = replace(address, zoom=(3.0, 30.0))
    figure = series_data.chart(results, zoomed, series_data.view(results, zoomed, picture), "light")
    assert figure["layout"]["xaxis"]["range"] == [3.0, 30.0]


def test_the_axis_of_commits_begins_where_it_is_asked_to(here):
    results, _, _ = here
    commits = results.commits("lab")
    axis = commit_axis(commits, (), BEGIN)
    assert axis["range"][0] == BEGIN - 0.4
    assert min(axis["tickvals"]) >= BEGIN
    assert axis["tickvals"][-1] == LENGTH - 1
    assert commit_axis(commits, (3.0, 9.0), BEGIN)["range"] == [3.0, 9.0]


def test_the_series_of_another_project_is_linked_to_its_page(here):
    results, alert, picture = here
    page = words(body(tracked(alert), results, "light"))
    for member in alert.members:
        address = SeriesAddress(*keys_by_name(results, "lab")[member.series])
        assert series_data.view(results, address, picture).points
        assert json.dumps(address.link()) in page
