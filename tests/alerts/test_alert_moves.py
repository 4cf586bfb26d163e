"""An alert stays the alert that people know, however a later analysis places, sizes, names and groups its changes."""

import datetime
import math

import pytest
from alerting import COMMITS, alerts, altered, series, step
from history import Here, commits_of, write_history
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.states_and_actions import Act
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.database.update_alerts import Synced
from lockstep.alerts.model import AnalysisResult
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

TODAY = datetime.date(2026, 11, 21)
UNTIL = TODAY + datetime.timedelta(7)
CASES = [series(case=f"M={m}") for m in (1, 8, 64)]

ACTS = {
    "new": None,
    "acknowledged": Act("ack", "ada", "looking"),
    "muted": Act("mute", "ada", "driver comes on Friday", until=UNTIL),
    "intended": Act("resolve", "ada", "exact rounding", ending="new baseline"),
}


@pytest.fixture
def store(tmp_path):
    database = Database(tmp_path / "alerts.sqlite")
    yield AlertStore(database)
    database.close()


def sync(store, *steps, commits=COMMITS):
    return store.sync(AnalysisResult(alerts(*steps), {"h200": tuple(commits)}), TODAY)


def moved(one, by=0, size=1.0, later=1, wider=0):
    """The step as another analysis has it: ``by`` commits on, of another size, and reported at another commit."""
    first, last = one.change.first + by - wider, one.change.last + by
    return altered(
        one,
        first=first,
        last=last,
        good=COMMITS[first - 1],
        between=tuple(COMMITS[first : last + 1]),
        size=one.change.size * size,
        left=one.change.left * size,
        reported_at=COMMITS[min(COMMITS.index(one.change.reported_at) + by + later, len(COMMITS) - 1)],
    )


def known(store):
    """What people know of the alerts: number, state, ending and the lines that they wrote."""
    lines = {
        one.id: [(line.who, line.note) for line in store.log(one.id) if line.who == "ada"] for one in store.alerts()
    }
    return [(one.id, one.state, one.ending, lines[one.id]) for one in store.alerts()[::-1]]


@pytest.mark.parametrize("state", ACTS)
@pytest.mark.parametrize("by", [-3, -2, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("size", [0.6, 1.0, 1.8])
def test_a_change_that_moves_stays_its_alert(store, state, by, size):
    steps = [step(10, name=name) for name in CASES]
    sync(store, *steps)
    if ACTS[state]:
        store.act(1, ACTS[state], COMMITS[-1], TODAY)
    store.note(1, "comment", "the tile is too small", "ada")
    before = known(store)
    after = [moved(one, by, size) for one in steps]
    assert sync(store, *after) == Synced()
    assert known(store) == before
    assert store.alert(1).alert.commits == (COMMITS[10 + by],)
    # And back again, as if the older version had run once more.
    assert sync(store, *steps) == sync(store, *after) == Synced()
    assert known(store) == before


moves = st.tuples(st.integers(-3, 3), st.floats(0.6, 1.8), st.integers(-1, 3), st.integers(0, 2))


@settings(max_examples=30, deadline=None)
@given(many=st.lists(st.tuples(moves, moves, moves), min_size=1, max_size=4), act=st.sampled_from(sorted(ACTS)))
def test_series_that_move_apart_and_together_stay_one_alert(tmp_path_factory, many, act):
    database = Database(tmp_path_factory.mktemp("moves") / "alerts.sqlite")
    store = AlertStore(database)
    steps = [step(10, name=name) for name in CASES]
    sync(store, *steps)
    if ACTS[act]:
        store.act(1, ACTS[act], COMMITS[-1], TODAY)
    before = known(store)
    for each in many:
        # From one analysis to the next no series moves by more than three commits.
        now = [moved(one, by, size, later, wider) for one, (by, size, later, wider) in zip(steps, each, strict=True)]
        near = [altered(one, reported_at=COMMITS[12 + number]) for number, one in enumerate(now)]
        assert sync(store, *near).opened == ()
        assert sync(store, *steps).opened == ()
    assert known(store) == before
    database.close()


@pytest.mark.parametrize("by", [-3, -2, -1, 1, 2, 3])
def test_two_changes_of_one_series_keep_their_places(store, by):
    first, second = step(6), step(11, by=0.2)
    sync(store, first, second)
    store.act(1, Act("ack", "ada", "the first"), "", TODAY)
    assert sync(store, moved(first, by), moved(second, by)) == Synced()
    assert [(one.id, one.state, one.alert.after) for one in store.alerts()[::-1]] == [
        (1, "acknowledged", COMMITS[6 + by]),
        (2, "new", COMMITS[11 + by]),
    ]


def test_a_name_that_another_change_had_is_not_taken_for_it(store):
    """The first change is reported where the second one was, and that one later."""
    first, second = step(6, reported_at=COMMITS[8]), step(10, by=0.2, reported_at=COMMITS[12])
    sync(store, first, second)
    for _ in range(3):
        assert (
            sync(store, altered(first, reported_at=COMMITS[12]), altered(second, reported_at=COMMITS[14])) == Synced()
        )
        assert [(one.id, one.alert.after) for one in store.alerts()] == [(2, COMMITS[10]), (1, COMMITS[6])]


def test_of_two_changes_the_one_that_stays_keeps_its_alert(store):
    first, second = step(6), step(10, by=0.2)
    sync(store, first, second)
    done = sync(store, moved(second, -1))
    assert (done.opened, done.resolved) == ((), (1,))
    assert store.alert(2).alert.after == COMMITS[9]


def test_commits_that_are_measured_later_in_between_move_nothing(store):
    """A history that is filled up has other places, and the change is reported at another commit."""
    every = COMMITS[::2]
    seldom = altered(
        step(10), first=5, last=5, good=COMMITS[8], between=(COMMITS[9], COMMITS[10]), reported_at=COMMITS[14]
    )
    sync(store, seldom, commits=every)
    store.act(1, Act("ack", "ada"), "", TODAY)
    assert sync(store, step(10, reported_at=COMMITS[12])) == Synced()
    assert (store.alert(1).state, store.alert(1).alert.commits) == ("acknowledged", (COMMITS[10],))
    assert sync(store, step(9, reported_at=COMMITS[11])) == Synced()


def test_another_change_is_another_alert(store):
    sync(store, step(6))
    # Too far away, the other way, of another series.
    assert sync(store, step(14)).opened == (2,)
    assert [one.ending for one in store.alerts()[::-1]] == ["withdrawn", ""]
    assert sync(store, step(14), step(12, by=-0.2, reported_at=COMMITS[16])).opened == ()
    newest = store.alerts()[0]
    assert (newest.id, newest.alert.topic, newest.state) == (3, "faster", "resolved")


def test_what_was_accepted_does_not_excuse_what_is_much_worse(store):
    sync(store, step(10))
    store.act(1, ACTS["intended"], COMMITS[-1], TODAY)
    assert sync(store, moved(step(10), 2, size=math.log(1.5) / math.log(1.05))).opened == (2,)


def test_an_alert_of_an_older_version_is_found_again(store):
    """Its series had no range of their own."""
    sync(store, step(10), step(10, name=CASES[0]))
    gone = ["'$.unknown'", *(f"'$.members[{at}].{name}'" for at in (0, 1) for name in ("before", "after"))]
    with store.database.write() as connection:
        connection.execute(text(f"UPDATE alert SET content = json_remove(content, {', '.join(gone)})"))
    assert sync(store, moved(step(10), 2), moved(step(10, name=CASES[0]), 1)) == Synced()


@pytest.mark.parametrize("planted", [1.05, 2.5])
def test_a_history_that_is_filled_up_keeps_its_alert(tmp_path, store, planted):
    """Results of every third commit first, later of all: the real detector names the change otherwise."""
    commits = commits_of(tmp_path / "repo", 45)
    slow = Here(slower=planted)
    for every in (3, 2, 1):
        write_history(tmp_path / "results", "h200", commits, lambda n: slow if n >= 20 else Here(), every=every)
        results = Store.open(tmp_path / "results", tmp_path / "repo", tmp_path / "cache").current()
        now = datetime.datetime.fromtimestamp(results.machines["h200"].last_date / 1000, datetime.UTC)
        ranges = Ranges(tmp_path / "repo")
        seen = analyse_results(results, Thresholds(), ranges, now, AnalysisFile(tmp_path / "found"))
        done = store.sync(seen, now.date())
        assert done == (Synced((1,)) if every == 3 else Synced())
        if every == 3:
            store.act(1, Act("ack", "ada", "looking"), "", now.date())
    one = store.alert(1)
    assert (one.state, one.alert.commits, len(one.alert.members)) == ("acknowledged", (commits[20],), 3)


@pytest.mark.parametrize(("old", "new"), [("tol=np.float64(0.5)", "tol=0.5"), ("f=<f at 0x7f01>", "f=<f>")])
def test_an_alert_of_a_parameter_that_is_written_differently_now_is_found_again(store, old, new):
    [first] = sync(store, step(name=series(case=old))).opened
    assert sync(store, step(name=series(case=new))) == Synced()
    assert (store.alert(first).state, store.alert(first).alert.members[0].series.case) == ("new", new)
