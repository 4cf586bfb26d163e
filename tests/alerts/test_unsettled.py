"""What is said of a change after which the points agree on no level."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from history import Here, commits_of, write_history
from served import words
from trees import analysed, open_store

from dashboard.address import SeriesAddress
from dashboard.pages import series, series_data
from lockstep.alerts.analysis.analyse_and_publish import analyse_store
from lockstep.alerts.database.alert_as_json import from_json, to_json
from lockstep.alerts.text import headline, lines
from lockstep.suite.thresholds import Thresholds

AT = 20
SLOWER = dict(enumerate((1.3, 2.8, 1.6, 2.1, 1.2, 2.5), AT))
ONE = SeriesAddress("h200", "linear", "triton", "M=1,K=64", "cold")
SAID = re.compile(r"unsettled, between \+(19|20)\.\d % and \+(179|180)\.\d %")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A repository in which the times of a kernel agree on no level from commit ``AT`` on, and its analysis."""
    repo = tmp_path_factory.mktemp("unsettled") / "repo"
    commits = commits_of(repo, AT + len(SLOWER))
    write_history(repo / "results", "h200", commits, lambda n: Here(slower=SLOWER.get(n, 1.0)))
    store = open_store(repo / "results", repo=repo)
    return repo, store, analysed(store, repo)


def test_the_command_says_so(planted):
    repo, _, _ = planted
    program = "from lockstep.commands.cli import main; main()"
    command = [sys.executable, "-c", program, "changes", "--results", "results", "--repo", "."]
    texts = [
        subprocess.run([*command, *options], cwd=repo, capture_output=True, text=True, check=False).stdout
        for options in ((), ("--json",))
    ]
    assert re.search(r"unsettled\W+(19|20)\.\d … \+(179|180)\.\d %\W+linear\.triton", texts[0])
    assert [one["unsettled"] for one in json.loads(texts[1])["changes"]] == [True] * 3


def test_the_alert_says_so_and_keeps_saying_it(planted):
    repo, store, _ = planted
    [alert] = [one for one in analyse_store(store, Thresholds(), repo)[1].alerts if one.topic == "slower"]
    assert from_json(json.loads(json.dumps(to_json(alert)))) == alert
    assert re.match(rf"linear on h200 slower, {SAID.pattern} in ", headline(alert))
    assert len([line for line in lines(alert) if SAID.match(line)]) == 3
    # Its page lists series that became faster in the same range: the headline has them too.
    assert "faster" not in headline(alert)
    mixed = replace(alert, members=(*alert.members, replace(alert.members[-1], size=-0.1)))
    assert headline(mixed) == f"{headline(alert)}; 1 faster in the same range"


def test_the_page_of_the_series_says_so(planted):
    _, store, findings = planted
    results = store.current()
    shown = series_data.view(results, ONE, findings.of_machine(results, ONE.machine))
    assert SAID.search(words(series.changes(results, ONE, shown)))
    figure = series_data.chart(results, ONE, shown, "light")
    assert SAID.search(figure["layout"]["annotations"][0]["text"])
    level = shown.analysis.levels[-1]
    dashed = [trace["y"][0] for trace in figure["data"] if trace.get("line", {}).get("dash") == "dash"]
    # The lowest and the highest of the points stand for a level that is not there.
    assert dashed[-2:] == pytest.approx([level.low, level.high], rel=1e-6)
