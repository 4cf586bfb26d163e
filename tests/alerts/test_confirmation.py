"""With ``confirm``, nobody is told of an alert before both ends were measured again."""

import math

import pytest
from alerting import COMMITS, alerts, queued, series, step

from lockstep.alerts.bisection.bisect import Expected, Measurement, SearchRange
from lockstep.alerts.bisection.confirmation import PATIENCE_MS, can_be_confirmed, confirm
from lockstep.alerts.database.alert_row import now_ms
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.database.update_alerts import CurrentAlerts
from lockstep.notify.outbox import Outbox
from lockstep.notify.receivers import receivers

#: 10 % slower at commit 10; recorded levels 0 and log 1.1.
CHANGE = Expected(math.log(1.1), 0.0, math.log(1.1))
SPAN = SearchRange(COMMITS[9], COMMITS[10], (COMMITS[10],))
SPEEDUP = series(quantity="speedup")


@pytest.fixture
def store(tmp_path):
    database = Database(tmp_path / "alerts.sqlite")
    yield AlertStore(database)
    database.close()


def sync(store, *steps, upto=20):
    return store.sync(CurrentAlerts(alerts(*steps), {"h200": COMMITS[:upto]}))


def measuring(good, bad):
    """A machine on which the two ends take these times."""
    times = {SPAN.good: good, SPAN.bad: bad}
    return lambda commit: Measurement(commit, math.log(times[commit]), math.log(times[commit]), math.log(times[commit]))


def written(store, now=None):
    """The messages that wait for their sender after what ``lockstep alerts notify`` does."""
    outbox = Outbox(store)
    outbox.write_alerts(receivers({"LOCKSTEP_NOTIFY": "json://127.0.0.1:1"}), "", now or now_ms(), confirm=True)
    return [row.body for row in queued(store, "due")]


def test_a_message_waits_and_says_that_the_change_was_confirmed(store):
    sync(store, step(10, by=0.1, name=SPEEDUP))
    assert written(store) == []
    assert list(Outbox(store).waiting(now_ms())) == [1]
    answer, _ = confirm(store, 1, SPAN, measuring(1.0, 1.1), CHANGE)
    assert answer == "confirmed"
    [body] = written(store)
    assert body.startswith(f"confirmed by a second measurement: {COMMITS[9][:8]} measures 1 again, ")
    assert [event.what for event in store.log(1)] == ["opened", "confirmed"]


def test_a_bad_end_that_is_good_closes_the_alert_until_later_commits_show_it(store):
    sync(store, step(10, by=0.1, name=SPEEDUP), upto=14)
    assert confirm(store, 1, SPAN, measuring(1.0, 1.0), CHANGE, COMMITS[13])[0] is None
    assert written(store) == []
    closed = store.alert(1)
    assert (closed.state, closed.ending) == ("resolved", "not confirmed")
    assert "is still good" in store.log(1)[-1].note
    assert sync(store, step(10, by=0.1, name=SPEEDUP), upto=16).reopened == ()
    assert sync(store, step(10, by=0.1, name=SPEEDUP), upto=17).reopened == (1,)
    assert store.log(1)[-1].note == "still slower 3 commits after it was called not confirmed"
    [body] = written(store)
    assert "confirmed" not in body


def test_what_is_slow_at_both_ends_is_told(store):
    """A new driver makes both ends slow today: the change is there, but did not come with the commits."""
    sync(store, step(10, by=0.1, name=SPEEDUP))
    assert confirm(store, 1, SPAN, measuring(1.1, 1.1), CHANGE)[0] == "unconfirmed"
    [body] = written(store)
    assert body.startswith("a second measurement did not decide: ")
    assert "is already bad" in body


def test_what_nobody_measures_again_is_told_after_a_day(store):
    sync(store, step(10, by=0.1, name=SPEEDUP))
    assert written(store, now_ms() + PATIENCE_MS - 60_000) == []
    assert len(written(store, now_ms() + PATIENCE_MS + 60_000)) == 1


@pytest.mark.parametrize(
    "found",
    [
        step(10, name=series(quantity="error")),
        step(10, name=series(quantity="host")),
        step(10, name=SPEEDUP, unknown="shallow"),
        step(10, name=series("", "", "", quantity="seconds")),
    ],
    ids=["check", "cost", "unknown range", "another project's"],
)
def test_what_cannot_be_measured_again_is_told_at_once(store, found):
    sync(store, found)
    [alert] = store.alerts()
    assert not can_be_confirmed(alert.alert)
    assert len(written(store)) == 1
