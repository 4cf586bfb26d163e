"""What a person has said of a step holds for the step, and hides no later one."""

import datetime

import pytest
from history import Here, commits_of, write_history
from trees import open_store

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.states_and_actions import OPEN, Act
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.text import headline, status
from lockstep.suite.thresholds import Thresholds

NOW = datetime.datetime(2020, 11, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("ending", ["new baseline", "no change"])
def test_a_later_step_is_told_against_the_accepted_level(tmp_path, ending):
    """+50 % at commit 12 is accepted; +20 % of the new level at commit 28 is an alert of 20 %, not of 80 %."""
    root, commits = tmp_path / "repo" / "results", commits_of(tmp_path / "repo", 40)
    alerts = AlertStore(Database(tmp_path / "alerts.sqlite"))
    store = open_store(root, cache=tmp_path / "cache")

    def analyse(upto):
        def planted(number):
            return Here(slower=1.8 if number >= 28 else 1.5 if number >= 12 else 1.0)

        write_history(root, "h200", commits[:upto], planted)
        kept, ranges = AnalysisFile(store.cache), Ranges(tmp_path / "repo", ("kernels",))
        alerts.sync(analyse_results(store.current(), Thresholds(), ranges, NOW, kept))

    analyse(20)
    [first] = alerts.alerts(OPEN, family="linear")
    assert "slower by 5" in headline(first.alert).replace("49.", "50.")
    alerts.act(first.id, Act("resolve", "ada", "a new accumulator", ending=ending), commits[19])
    analyse(26)
    assert alerts.alerts(OPEN, family="linear") == []
    analyse(40)
    [second] = alerts.alerts(OPEN, family="linear")
    assert second.id != first.id
    worst = second.alert.members[0]
    assert 0.17 < worst.size < 0.20  # log 1.2 is .182
    assert status(alerts.alert(first.id)) == f"resolved ({ending})"
