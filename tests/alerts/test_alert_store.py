"""The store has one alert a change, however often and by however many processes the results are analysed."""

import datetime
import random
import signal
import sqlite3
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from alerting import COMMITS, alerts, altered, postgres, python, series, step
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from lockstep.alerts.cause.found_change import Cause
from lockstep.alerts.database.alert_row import NoSuchAlert
from lockstep.alerts.database.connection import Database, StateError
from lockstep.alerts.database.location import default_state
from lockstep.alerts.database.states_and_actions import Act, LifecycleError
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.database.update_alerts import Synced
from lockstep.alerts.model import Alert, AnalysisResult, Waiver

TODAY = datetime.date(2026, 11, 21)
UNTIL = TODAY + datetime.timedelta(7)


EVERYWHERE = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    # Not below pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with postgres(Path(folder) / "pg") as url:
            yield url


@pytest.fixture
def url(request, tmp_path):
    """A fresh database: SQLite's, and PostgreSQL's as well in the tests that are marked ``EVERYWHERE``."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return str(tmp_path / "state" / "alerts.sqlite")
    url = request.getfixturevalue("server")
    name = f"t{time.time_ns()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.replace("/postgres?", f"/{name}?")


@pytest.fixture
def store(url):
    database = Database(url)
    yield AlertStore(database)
    database.close()


def seen(*steps, upto=20, **changes):
    return AnalysisResult(alerts(*steps, **changes), {"h200": COMMITS[:upto]})


def sync(store, *steps, today=TODAY, upto=20, **changes):
    return store.sync(seen(*steps, upto=upto, **changes), today)


def states(store):
    return [(one.state, one.ending) for one in store.alerts()[::-1]]


def whats(store, number=1):
    return [line.what for line in store.log(number)]


@EVERYWHERE
def test_analysing_again_opens_nothing_twice(store):
    two = [step(10), step(10, name=series(case="M=1,K=64"), by=0.1), step(15, name=series(family="kda"))]
    assert len(sync(store, *two).opened) == 2
    for _ in range(3):
        assert sync(store, *two) == type(sync(store, *two))()
    assert states(store) == [("new", "")] * 2
    assert whats(store) == ["opened"]
    kept = store.alert(2)
    assert [member.series.case for member in kept.alert.members] == ["M=1,K=64", "M=8,K=64"]
    assert kept.alert == seen(*two).alerts[1]


def test_more_cases_and_a_better_place_stay_the_same_alert(store):
    sync(store, step(9, 12, reported_at=COMMITS[13]))
    more = step(10, name=series(case="M=1,K=64"))
    moved = step(10, 11, reported_at=COMMITS[13], by=0.06)
    assert sync(store, moved, more).opened == ()
    [one] = store.alerts()
    assert (one.alert.commits, len(one.alert.members)) == ((COMMITS[10],), 2)
    assert whats(store) == ["opened", "revised"]


def test_groups_of_one_analysis_that_join_keep_all_their_series(store):
    one, two = step(9, 12), step(12, name=series(case="M=1,K=64"))
    current = AnalysisResult([*alerts(one), *alerts(two)], {"h200": COMMITS})
    store.sync(current, TODAY)
    [joined], log = store.alerts(), store.log(1)
    assert len(joined.alert.members) == 2
    version = store.version()
    store.sync(current, TODAY)
    assert (store.alerts(), store.log(1), store.version()) == ([joined], log, version)


def test_a_group_that_falls_apart_stays_one_alert(store):
    other = series(case="M=1,K=64")
    sync(store, step(9, 12, reported_at=COMMITS[13]), step(11, 12, name=other, reported_at=COMMITS[13]))
    apart = [step(9, reported_at=COMMITS[13]), step(12, name=other, reported_at=COMMITS[13])]
    for _ in range(3):
        assert sync(store, *apart).opened == ()
    [one] = store.alerts()
    assert len(one.alert.members) == 2
    assert whats(store) == ["opened", "revised"]


def test_a_fix_in_the_data_resolves_and_its_loss_reopens(store):
    sync(store, step(10))
    assert sync(store, step(10, left=0.001)).resolved == (1,)
    assert states(store) == [("resolved", "fixed")]
    assert sync(store, step(10)).reopened == (1,)
    assert whats(store) == ["opened", "resolved", "reopened"]


def test_a_change_that_later_data_contradict_is_withdrawn_and_may_come_back(store):
    sync(store, step(10))
    assert sync(store).resolved == (1,)
    assert states(store) == [("resolved", "withdrawn")]
    assert sync(store, step(10, reported_at=COMMITS[15])).reopened == (1,)


def test_called_fixed_and_still_there(store):
    sync(store, step(10), upto=14)
    store.act(1, Act("resolve", "ada", "reverted", ending="fixed"), COMMITS[13], TODAY)
    assert sync(store, step(10), upto=16).reopened == ()
    assert sync(store, step(10), upto=17).reopened == (1,)
    assert "3 commits" in store.log(1)[-1].note


@pytest.mark.parametrize("ending", ["intended", "new baseline", "no change"])
def test_an_accepted_step_stays_closed_until_a_person_takes_it_back(store, ending):
    sync(store, step(10), upto=14)
    with pytest.raises(LifecycleError, match=f"alert 1: the ending '{ending}' needs a reason"):
        store.act(1, Act("resolve", "ada", ending=ending), COMMITS[13], TODAY)
    store.act(1, Act("resolve", "ada", "exact rounding", ending=ending), COMMITS[13], TODAY)
    assert sync(store, step(10)) == type(sync(store, step(10)))()
    assert states(store) == [("resolved", ending)]
    assert whats(store)[-1] == ("resolved" if ending == "intended" else ending)
    store.act(1, Act("reopen", "bo", "it was one after all"), today=TODAY)
    sync(store, step())
    assert states(store) == [("reopened", "")]


@EVERYWHERE
def test_a_mute_ends_by_itself(store):
    sync(store, step(10))
    with pytest.raises(LifecycleError, match="--until"):
        store.act(1, Act("mute", "ada", "known"), "", TODAY)
    with pytest.raises(LifecycleError, match="--because"):
        store.act(1, Act("mute", "ada", until=UNTIL), "", TODAY)
    store.act(1, Act("mute", "ada", "driver comes on Friday", until=UNTIL), "", TODAY)
    assert sync(store, step(10), today=UNTIL).reopened == ()
    assert sync(store, step(10), today=UNTIL + datetime.timedelta(1)).reopened == (1,)
    assert store.log(1)[1].note == f"until {UNTIL}: driver comes on Friday"


def test_a_mute_is_prolonged_without_a_word(store):
    longer, over = UNTIL + datetime.timedelta(30), UNTIL + datetime.timedelta(1)
    sync(store, step(10), waiver=Waiver("noisy rack", UNTIL))
    assert sync(store, step(10), today=over, waiver=Waiver("noisy rack", longer)).reopened == ()
    assert whats(store) == ["opened", "muted"]
    assert store.alert(1).muted_until == longer
    later = longer + datetime.timedelta(7)
    store.act(1, Act("mute", "ada", "the rack goes on Friday", until=later), "", over)
    assert store.alert(1).muted_until == later
    assert sync(store, step(10), today=later, waiver=Waiver("noisy rack", longer)).reopened == ()


def test_a_recovered_alert_is_not_reopened_when_its_mute_ends(store):
    sync(store, step(10), waiver=Waiver("noisy rack", UNTIL))
    assert sync(store, step(10, left=0.001), today=UNTIL + datetime.timedelta(1)).reopened == ()
    assert states(store) == [("resolved", "fixed")]


@EVERYWHERE
def test_the_log_names_actor_and_action(store):
    sync(store, step(10))
    store.act(1, Act("ack", "ada", "looking"), "", TODAY)
    with pytest.raises(LifecycleError, match="an alert in the state acknowledged cannot be acknowledged"):
        store.act(1, Act("ack", "bo"), "", TODAY)
    with pytest.raises(LifecycleError, match="--by"):
        store.act(1, Act("resolve", " "), "", TODAY)
    store.act(1, Act("resolve", "bo", "fixed in #12"), "", TODAY)
    store.act(1, Act("reopen", "ada", "no"), "", TODAY)
    lines = [(line.who, line.what, line.state, line.note) for line in store.log(1)]
    assert lines[1:] == [
        ("ada", "acknowledged", "acknowledged", "looking"),
        ("bo", "resolved", "resolved", "fixed in #12"),
        ("ada", "reopened", "reopened", "no"),
    ]
    with pytest.raises(NoSuchAlert, match="alert 7"):
        store.act(7, Act("ack", "ada"), "", TODAY)


@EVERYWHERE
@pytest.mark.parametrize("statement", ["UPDATE alert_event SET who = 'eve'", "DELETE FROM alert_event"])
def test_the_log_cannot_be_changed(store, statement):
    sync(store, step(10))
    with pytest.raises(DBAPIError, match="append-only"), store.database.write() as connection:
        connection.execute(text(statement))
    assert whats(store) == ["opened"]


def test_improvements_old_changes_and_excuses_ask_nothing_of_anybody(store):
    sync(store, step(10, by=-0.1))
    sync(store, step(10, by=-0.1), step(12, name=series(family="kda")), too_old=True)
    assert states(store) == [("resolved", "recorded")] * 2
    accepted = [step(14, name=series(family="hgemm"))]
    sync(store, *accepted, waiver=Waiver("exact rounding"))
    assert states(store)[2] == ("resolved", "intended")
    assert (store.log(3)[0].who, store.log(3)[0].note) == ("thresholds.toml", "exact rounding")
    sync(store, step(16, name=series(family="w4a16")), waiver=Waiver("noisy rack", UNTIL))
    assert store.alert(4).muted_until == UNTIL


def test_a_slowdown_that_joins_an_improvement_is_reported(store):
    sync(store, step(10, by=-0.1))
    worse = step(10, name=series(case="M=1,K=64"))
    assert sync(store, step(10, by=-0.1), worse).reopened == (1,)
    assert store.alert(1).alert.topic == "slower"


@pytest.mark.parametrize(
    "silent",
    [{"too_old": True}, {"waiver": Waiver("exact rounding")}, {"waiver": Waiver("noisy rack", UNTIL)}, {"gone": True}],
    ids=["old", "accepted", "muted", "gone"],
)
def test_a_slowdown_that_asks_nothing_of_anybody_leaves_an_improvement_recorded(store, silent):
    better, worse = step(10, by=-0.1), step(10, name=series(case="M=1,K=64"))
    sync(store, better)
    left = 0.001 if silent == {"gone": True} else worse.change.left
    rest = {name: value for name, value in silent.items() if name != "gone"}
    suppressed = alerts(better, altered(worse, left=left), **rest)
    for _ in range(2):
        assert store.sync(AnalysisResult(suppressed, {"h200": COMMITS}), TODAY) == Synced()
    assert states(store) == [("resolved", "recorded")]
    assert whats(store)[0] == "opened"
    assert "reopened" not in whats(store)
    # Later it does: the acceptance or the mute is taken back, or the slowdown returns.
    assert sync(store, better, worse).reopened == (1,)
    assert states(store) == [("reopened", "")]


def test_alerts_of_a_machine_that_was_not_looked_at_are_left_alone(store):
    sync(store, step(10))
    store.sync(AnalysisResult([], {"other": COMMITS}), TODAY)
    assert states(store) == [("new", "")]


SYNC = """
import sys
from alerting import COMMITS, alerts, series, step
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import AnalysisResult
print("started", flush=True)
store = AlertStore(Database(sys.argv[1]))
steps = [step(3 + 2 * n, name=series(family=f"f{n}", case=f"M={m}")) for n in range(8) for m in range(5)]
for round in range(int(sys.argv[2])):
    store.sync(AnalysisResult(alerts(*steps), {"h200": COMMITS}))
print("done")
"""


def assert_sound(url, complete):
    database = Database(url)
    store = AlertStore(database)
    kept = store.alerts()
    assert len(kept) in ((8,) if complete else (0, 8))
    assert len({one.fingerprint for one in kept}) == len(kept)
    assert all(len(one.alert.members) == 5 for one in kept)
    assert all(len(store.log(one.id)) == 1 for one in kept)
    database.close()


@EVERYWHERE
def test_two_processes_at_once_open_each_alert_once(url):
    both = [python(SYNC, url, "2") for _ in range(2)]
    assert [process.communicate(timeout=60)[0].split()[-1] for process in both] == ["done"] * 2
    assert_sound(url, complete=True)


def test_a_new_database_that_somebody_else_sets_up_is_waited_for(tmp_path):
    path = tmp_path / "alerts.sqlite"
    with ThreadPoolExecutor(2) as pool, closing(sqlite3.connect(path, isolation_level=None)) as another:
        another.execute("BEGIN IMMEDIATE")
        opened = [pool.submit(Database, path) for _ in range(2)]
        assert not wait(opened, timeout=0.2).done
        another.execute("COMMIT")
    for one in opened:
        one.result().close()


@EVERYWHERE
def test_killed_at_any_moment_nothing_is_lost_or_doubled(url):
    dice = random.Random(4)
    for _ in range(3):
        process = python(SYNC, url, "1000")
        assert process.stdout.readline() == "started\n"
        time.sleep(dice.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        assert_sound(url, complete=False)
    assert python(SYNC, url, "1").communicate(timeout=60)[0].split()[-1] == "done"
    assert_sound(url, complete=True)


def test_an_error_of_the_database_names_no_secret(tmp_path):
    with pytest.raises(StateError, match="does not support mysql"):
        Database("mysql://ada:secret@host/x")
    with pytest.raises(StateError) as caught:
        Database("postgresql://ada:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)
    (tmp_path / "text").write_text("not a database, but long enough to be taken for one" * 50)
    with pytest.raises(StateError, match="not a database"):
        Database(tmp_path / "text")
    newer = tmp_path / "newer.sqlite"
    with Database(newer).write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StateError, match=r"another version of Lockstep.*layout is 9999.*use that version"):
        Database(newer)


@EVERYWHERE
@pytest.mark.parametrize("content", ["'{}'", "'[1]'", "'{\"members\": 3}'"])
def test_an_alert_that_cannot_be_read_is_named(store, content):
    sync(store, step(10))
    with store.database.write() as connection:
        connection.execute(text(f"UPDATE alert SET content = {content}"))
    with pytest.raises(
        StateError, match=r"is damaged: the content of alert 1 .*Restore a backup.*docs/alerts.md#backup"
    ):
        store.alerts()
    with pytest.raises(StateError, match="is damaged"):
        sync(store, step(10))


def test_flipped_bits_give_no_other_error(tmp_path):
    """A damaged file is used as far as it can be read, or the error says what to do."""
    made = tmp_path / "alerts.sqlite"
    database = Database(made)
    sync(AlertStore(database), *(step(10, name=series(family=f"family{number}")) for number in range(30)))
    database.close()
    content, said = made.read_bytes(), set()
    for seed in range(40):
        draw, damaged = random.Random(seed), bytearray(content)
        for place in draw.sample(range(8 * len(content)), 200):
            damaged[place // 8] ^= 1 << place % 8
        path = tmp_path / f"{seed}.sqlite"
        path.write_bytes(damaged)
        try:
            database = Database(path)
            AlertStore(database).alerts()
            sync(AlertStore(database), step(10))
        except StateError as error:
            said.add("Restore a backup" in str(error))
    assert True in said


def test_a_backup_of_a_database_in_use_holds_what_was_just_said(store, url, tmp_path):
    """The documented command, ``.backup``, calls the same function of SQLite."""
    sync(store, step(10))
    store.act(1, Act("mute", "Ada", "known", UNTIL), today=TODAY)
    with closing(sqlite3.connect(url)) as used, closing(sqlite3.connect(tmp_path / "backup.sqlite")) as backup:
        used.backup(backup)
    copy = Database(tmp_path / "backup.sqlite")
    assert states(AlertStore(copy)) == [("muted", "")]
    copy.close()


def test_the_usual_place_is_one_for_each_results_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    one, other = default_state(tmp_path / "a" / "results"), default_state(tmp_path / "b" / "results")
    assert one != other
    assert one.is_relative_to(tmp_path / "lockstep")
    assert default_state(tmp_path / "x" / ".." / "a" / "results") == one


def silent_machine(machine="h200"):
    text = f"{machine} has reported nothing since 2026-11-01"
    return Alert("silent", machine, "", COMMITS[-1], (), Cause("unexplained", text), text=text)


def sync_silent(store, *steps, silent=True, today=TODAY, **changes):
    found = alerts(*steps, **changes)
    if not silent:
        return store.sync(AnalysisResult(found, {"h200": COMMITS}), today)
    return store.sync(AnalysisResult([*found, silent_machine()], {"h200": COMMITS}, frozenset({"h200"})), today)


@EVERYWHERE
def test_what_is_open_on_a_machine_that_fell_silent_is_archived_under_one_alert(store):
    slow, other = step(10), step(4, name=series(family="kda"))
    sync(store, slow, other)
    store.act(1, Act("ack", "ann"), "", TODAY)
    done = sync_silent(store, slow, other)
    assert done == Synced(opened=(3,))
    assert states(store) == [("resolved", "archived"), ("resolved", "archived"), ("new", "")]
    assert sync_silent(store, slow, other) == Synced()
    # What a later analysis finds on it opens nothing either.
    assert sync_silent(store, slow, other, step(15, name=series(family="hgemm"))) == Synced()
    assert states(store)[3] == ("resolved", "archived")


@EVERYWHERE
def test_what_is_still_there_when_the_machine_reports_again_is_reopened(store):
    sync_silent(store, step(10), step(4, name=series(family="kda")))
    [alert] = [one for one in store.alerts() if one.alert.family == "linear"]
    done = sync_silent(store, step(10), silent=False)
    assert done.reopened == (alert.id,)
    assert store.log(alert.id)[-1].note == "its machine reports again"
    assert sorted((one.alert.topic, one.alert.family, one.state, one.ending) for one in store.alerts()) == [
        ("silent", "", "resolved", "fixed"),
        ("slower", "kda", "resolved", "archived"),
        ("slower", "linear", "reopened", ""),
    ]


def test_a_mute_outlives_the_silence(store):
    sync(store, step(10))
    store.act(1, Act("mute", "ann", "known", UNTIL), "", TODAY)
    sync_silent(store, step(10))
    assert states(store)[0] == ("muted", "")
    sync_silent(store, step(10), today=UNTIL + datetime.timedelta(1))
    assert states(store)[0] == ("resolved", "archived")


def test_another_machine_is_not_archived(store):
    found = alerts(step(10), step(10, name=series(machine="b200")))
    everywhere = {"h200": COMMITS, "b200": COMMITS}
    store.sync(AnalysisResult([*found, silent_machine("b200")], everywhere, frozenset({"b200"})), TODAY)
    assert {one.alert.machine for one in store.alerts() if one.open and one.alert.topic == "slower"} == {"h200"}
    assert states(store)[0] == ("resolved", "archived")
