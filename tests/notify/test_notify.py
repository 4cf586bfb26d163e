"""Messages reach a receiver once, whatever dies; feeds say the same."""

import datetime
import json
import random
import signal
import time
from xml.etree import ElementTree

import pytest
from alerting import COMMITS, Service, alerts, python, queued, series, step

from lockstep.alerts.cause.change_facts import Facts
from lockstep.alerts.database.alert_row import now_ms
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.states_and_actions import Act
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import AnalysisResult
from lockstep.notify.deliver import deliver
from lockstep.notify.feed import alerts_json, atom
from lockstep.notify.message import alert_message
from lockstep.notify.outbox import ATTEMPTS, LEASE_MS, Outbox
from lockstep.notify.receivers import ReceiverError, receivers

SITE = "https://bench.example.org/"
DAY_MS = 86_400_000


@pytest.fixture
def service():
    with Service() as service:
        yield service


@pytest.fixture
def store(tmp_path):
    database = Database(tmp_path / "alerts.sqlite")
    yield AlertStore(database)
    database.close()


def sync(store, *steps):
    return store.sync(AnalysisResult(alerts(*steps), {"h200": COMMITS}))


def run(store, environment, now=None):
    """What ``lockstep alerts notify`` does."""
    outbox, told = Outbox(store), receivers(environment)
    now = now or now_ms()
    outbox.write_alerts(told, SITE, now)
    outbox.write_digest(told, SITE, now)
    return deliver(outbox, told)


def test_one_message_an_alert_with_numbers_range_reason_and_link(store, service):
    sync(
        store, step(9, 11), step(9, 11, by=0.102, name=series(case="M=1,K=64")), step(5, by=-0.2, name=series("x", "k"))
    )
    for _ in range(3):
        run(store, {"LOCKSTEP_NOTIFY": service.url})
    [message] = service.got
    headline = "linear on h200 slower by 10.2 % in 09090909..0c0c0c0c: linear.triton M=1,K=64 cold and 1 more"
    assert message["title"] == headline
    assert message["type"] == "warning"
    for part in ("+9.8 … +10.6 %", "one of 3 commits", "why: own commit", "https://bench.example.org/alert/"):
        assert part in message["message"]


def test_no_message_digest_or_feed_tells_of_a_loss_that_is_probably_not_the_codes(store, service):
    moved = step(9, before=Facts("a", machine={"gpu": "A"}), after=Facts("b", machine={"gpu": "B"}))
    sync(store, moved)
    run(store, {"LOCKSTEP_NOTIFY": service.url, "LOCKSTEP_NOTIFY_DIGEST": service.url})
    assert service.got == []
    assert "<entry>" not in atom(store.alerts())
    assert [one["doubted"] for one in alerts_json(store.alerts())] == [True]


def test_a_new_receiver_hears_of_what_is_open_and_others_not_again(store, service):
    sync(store, step(9))
    run(store, {"LOCKSTEP_NOTIFY": service.url})
    run(store, {"LOCKSTEP_NOTIFY": service.url, "LOCKSTEP_NOTIFY_TEAM": f"{service.url}/team"})
    assert len(service.got) == 2


def test_a_reopened_alert_is_sent_again_and_a_closed_one_is_not(store, service):
    sync(store, step(9))
    environment = {"LOCKSTEP_NOTIFY": service.url}
    run(store, environment)
    store.act(1, Act("resolve", "ada", "fixed"))
    run(store, environment)
    store.act(1, Act("reopen", "bo", "it is not"))
    run(store, environment)
    assert [title.startswith("Again: ") for title in service.titles] == [False, True]


def test_a_refused_message_waits_longer_each_time_and_arrives_once(store, service):
    sync(store, step(9))
    service.answer = lambda handler: handler.send_response(503)
    environment = {"LOCKSTEP_NOTIFY": service.url}
    [refused] = run(store, environment).refused
    assert "503" in refused
    assert "127.0.0.1" not in refused
    outbox, told = Outbox(store), receivers(environment)
    assert deliver(outbox, told).refused == ()
    now, waits = now_ms(), []
    for _ in range(ATTEMPTS - 1):
        now = queued(store, "due")[0].due_at
        assert outbox.take(told, now - 1) is None
        outbox.mark_refused(outbox.take(told, now), "refused", now)
        waits += [row.due_at - now for row in queued(store, "due")]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (60_000, 4 * 3_600_000)
    [given_up] = queued(store, "failed")
    assert given_up.attempts == ATTEMPTS
    assert outbox.take(told, now + 10 * DAY_MS) is None


def test_a_message_whose_receiver_hangs_up_is_named_and_not_sent_again(store, service):
    sync(store, step(9))
    service.answer = lambda handler: handler.connection.close()
    environment = {"LOCKSTEP_NOTIFY": service.url}
    [line] = run(store, environment).refused
    assert f"{alert_message(store.alert(1)).title}: it may not have arrived" in line
    service.answer = lambda handler: handler.send_response(200)
    run(store, environment, now_ms() + DAY_MS)
    assert len(service.got) == 1


def test_a_message_about_an_alert_closed_meanwhile_is_dropped(store, service):
    sync(store, step(9))
    service.answer = lambda handler: handler.send_response(503)
    environment = {"LOCKSTEP_NOTIFY": service.url}
    run(store, environment)
    store.act(1, Act("resolve", "ada", "fixed"))
    outbox = Outbox(store)
    assert outbox.take(receivers(environment), now_ms() + DAY_MS) is None
    assert len(queued(store, "dropped")) == 1


SEND = """
import sys
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.notify.deliver import deliver
from lockstep.alerts.database.alert_row import now_ms
from lockstep.notify.outbox import Outbox
from lockstep.notify.receivers import receivers
store, told = AlertStore(Database(sys.argv[1])), receivers({"LOCKSTEP_NOTIFY": sys.argv[2]})
outbox = Outbox(store)
print("started", flush=True)
outbox.write_alerts(told, "", now_ms())
print(deliver(outbox, told).sent)
"""


def many(store):
    sync(store, *(step(2 + n, name=series(family=f"f{n}")) for n in range(12)))


def test_two_senders_at_once_send_everything_once(store, service, tmp_path):
    many(store)
    service.answer = lambda handler: (time.sleep(0.02), handler.send_response(200))
    both = [python(SEND, str(tmp_path / "alerts.sqlite"), service.url) for _ in range(2)]
    sent = [int(process.communicate(timeout=60)[0].split()[-1]) for process in both]
    assert sum(sent) == len(service.got) == len(set(service.titles)) == 12


def test_killed_while_sending_nothing_is_lost(store, service, tmp_path):
    many(store)
    service.answer = lambda handler: (time.sleep(0.05), handler.send_response(200))
    dice = random.Random(7)
    for _ in range(3):
        process = python(SEND, str(tmp_path / "alerts.sqlite"), service.url)
        assert process.stdout.readline() == "started\n"
        time.sleep(dice.uniform(0.2, 0.9))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    outbox, told = Outbox(store), receivers({"LOCKSTEP_NOTIFY": service.url})
    deliver(outbox, told)
    interrupted = queued(store, "sending")
    assert len(interrupted) <= 3
    while taken := outbox.take(told, now_ms() + LEASE_MS + 1):
        outbox.mark_sent(taken, now_ms())
    assert len(queued(store, "sent")) == 12
    assert len(set(service.titles)) >= 12 - len(interrupted)


def test_a_digest_a_day_and_none_when_there_is_nothing_to_say(store, service):
    environment = {"LOCKSTEP_NOTIFY_DIGEST": service.url}
    run(store, environment)
    assert service.got == []
    sync(store, step(9), step(12, name=series(family="kda")))
    [kda] = store.alerts(family="kda")
    store.act(kda.id, Act("ack", "ada", "looking"))
    now = now_ms()
    midnight = now - now % DAY_MS + DAY_MS
    for hour in (1, 2, 25):
        outbox, told = Outbox(store), receivers(environment)
        outbox.write_digest(told, SITE, midnight + hour * 3_600_000)
        while taken := outbox.take(told, midnight + 3 * DAY_MS):
            outbox.mark_sent(taken, midnight + 3 * DAY_MS)
    first, second = queued(store, "sent")
    assert first.title == second.title == "Lockstep: 2 open alerts"
    store.act(kda.id, Act("mute", "ada", "known", until=datetime.date(2999, 1, 1)))
    assert outbox.write_digest(told, SITE, midnight + 49 * 3_600_000) == 1
    [third] = queued(store, "due")
    assert third.title == "Lockstep: 1 open alert"
    assert third.body.startswith("- new: linear on h200 slower")
    assert third.body.endswith(f" {SITE}alert/2")


def test_addresses_come_from_the_environment_and_are_not_shown():
    found = receivers(
        {"LOCKSTEP_NOTIFY": "json://a/secret json://b", "LOCKSTEP_NOTIFY_DIGEST_X": "json://c", "X": "json://d"}
    )
    assert [(one.name, one.digest) for one in found] == [
        ("LOCKSTEP_NOTIFY no. 1", False),
        ("LOCKSTEP_NOTIFY no. 2", False),
        ("LOCKSTEP_NOTIFY_DIGEST_X", True),
    ]
    assert "secret" not in repr(found)
    with pytest.raises(ReceiverError, match="LOCKSTEP_NOTIFY_Y is not an address") as caught:
        receivers({"LOCKSTEP_NOTIFY_Y": "nonsense://token"})
    assert "token" not in str(caught.value)


def test_the_feeds_hold_every_alert_and_survive_odd_names(store):
    odd = series(family="a<b>&\u0007", case="M=<script>")
    sync(store, step(9), step(12, name=odd))
    [usual] = store.alerts(family="linear")
    store.act(usual.id, Act("mute", "ada", "known", until=datetime.date(2999, 1, 1)))
    kept = store.alerts()
    feed = ElementTree.fromstring(atom(kept, SITE))
    spaces = {"a": "http://www.w3.org/2005/Atom"}
    ids = [entry.findtext("a:id", namespaces=spaces) for entry in feed.findall("a:entry", spaces)]
    assert sorted(ids) == sorted(f"urn:lockstep:alert:{one.fingerprint}" for one in kept)
    titles = [entry.findtext("a:title", namespaces=spaces) for entry in feed.findall("a:entry", spaces)]
    assert any(title.startswith("[muted until 2999-01-01] ") for title in titles)
    assert feed.find("a:entry/a:link", spaces).get("href").startswith(f"{SITE}alert/")
    [plain] = [one for one in json.loads(json.dumps(alerts_json(kept, SITE))) if one["id"] == usual.id]
    assert (plain["state"], plain["commits"], plain["cause"]["kind"]) == ("muted", [COMMITS[9]], "own commit")
    assert ElementTree.fromstring(atom([])).findtext("a:title", namespaces=spaces) == "Lockstep alerts"
