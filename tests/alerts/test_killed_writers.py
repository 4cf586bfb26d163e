"""Ingest, analysis and the dashboard's writer are killed at random moments: nothing is lost, nothing is there twice.

A moment is one before a process changes a file or a database. A first, undisturbed pass names the moments; each kill
draws a kind of moment, then one of its kind. The results are recorded ones that arrive in parts.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from served import ACCESS, KNOWN, act

from dashboard.server.app import create_app
from lockstep.alerts.analysis.analyse import analyse_store
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.states_and_actions import OPEN
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.pages_service import AlertService
from lockstep.history.point_columns import COLUMNS
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

ROOT = Path(__file__).parents[2]

#: The latest last day of a mute, so that no mute ends during a test.
LATE = "9999-12-31"


@dataclass(frozen=True)
class Place:
    """A results folder, its cache and its alerts."""

    folder: str

    @property
    def results(self) -> Path:
        return Path(self.folder, "results")

    @property
    def store(self) -> Store:
        return Store.open(self.results, ROOT, Path(self.folder, "cache"), patience=0.0)

    @property
    def alerts(self) -> AlertStore:
        return AlertStore(Database(Path(self.folder, "alerts.sqlite")))


def ingest(place: Place, part: int) -> None:
    place.store.refresh()


def analyse(place: Place, part: int) -> None:
    place.alerts.sync(analyse_store(place.store, Thresholds(), ROOT, ("kernels",))[1])


def write(place: Place, part: int) -> None:
    """Act on every alert by its page, as a person does who sees what was already done."""
    store, alerts = place.store, place.alerts
    app = create_app(store, AlertService(alerts), ACCESS, Findings(store.cache, ROOT))
    client = app.server.test_client()
    for alert in sorted(alerts.alerts(), key=lambda alert: alert.id):
        chosen = ("ack", "mute", "no-change")[(alert.id + part) % 3]
        for doing in (chosen, "comment") if alert.state in (*OPEN, "muted") else ("comment",):
            because = f"{doing} {alert.id} in part {part}"
            if not any(event.note.endswith(because) for event in alerts.log(alert.id)):
                said = act(client, alert.id, doing, because, LATE, KNOWN)
                with Path(place.folder, "said").open("a") as file:
                    file.write(json.dumps([alert.id, because, said]) + "\n")


STEPS = {step.__name__: step for step in (ingest, write, analyse)}


class Moments:
    """Counts the moments of a process by kind, and kills it at the chosen one."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.number, self.seen = kind, number, Counter[str]()

    def __call__(self, kind: str) -> None:
        self.seen[kind] += 1
        if kind == self.kind and self.seen[kind] == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, folder: str) -> None:
        """Watch files below a folder, and the statements of every SQLite database."""

        def audit(event: str, arguments: tuple[object, ...]) -> None:
            if event in ("os.rename", "os.link", "os.remove", "os.mkdir") or (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            ):
                path = str(arguments[0])
                if path.startswith(folder):
                    self(f"{event} {Path(path).suffix or Path(path).name[:5]}")

        def connect(*arguments: object, **options: object) -> sqlite3.Connection:
            connection = opened(*arguments, **options)
            connection.set_trace_callback(self.statement)
            return connection

        sys.addaudithook(audit)
        opened, sqlite3.connect, sqlite3.dbapi2.connect = sqlite3.connect, connect, connect

    def statement(self, text: str) -> None:
        words = text.split()
        if words[0] in ("BEGIN", "COMMIT", "ROLLBACK", "INSERT", "UPDATE", "DELETE", "CREATE"):
            table = next((word for word in words[1:] if word.islower() and word.isidentifier()), "")
            self(f"{words[0]} {table}")


def fork() -> None:
    """Do what each line of standard input says in a forked process, and say its status and its moments.

    A fork of a process that has imported everything starts a hundred times faster than a new process.
    """
    for line in sys.stdin:
        folder, step, part, kind, number = json.loads(line)
        seen = Path(folder, "moments")
        if not (child := os.fork()):
            moments = Moments(kind, number)
            moments.watch(folder)
            try:
                STEPS[step](Place(folder), part)
                seen.write_text(json.dumps(moments.seen))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([status, json.loads(seen.read_text()) if status == 0 else {}]), flush=True)


@pytest.fixture
def forks():
    """Run a step in a process of its own; return its exit status and how many moments of each kind it had."""
    code = "from test_killed_writers import fork; fork()"
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", Path(__file__).parent)))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(place: Place, step: str, part: int, kind: str = "", number: int = 0) -> tuple[int, dict[str, int]]:
        process.stdin.write(json.dumps([place.folder, step, part, kind, number]) + "\n")
        process.stdin.flush()
        return tuple(json.loads(process.stdout.readline()))

    with process:
        yield run
        process.stdin.close()


def arrive(place: Place, machines: tuple[str, ...], part: int, parts: int) -> None:
    """Copy the next part of the recorded results of some machines into a place."""
    for machine in machines:
        folder = place.results / machine
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in (ROOT / "results" / machine).glob("*-*.json"))
        for name in ("machine.json", *names[part::parts]):
            for path in (ROOT / "results" / machine).glob(f"{name.removesuffix('.json')}.*"):
                shutil.copy2(path, folder)
    shutil.copy2(ROOT / "results" / "benchmarks.json", place.results)


def said_by_store(place: Place) -> dict[str, object]:
    """Return every point of a store, without the numbers that runs have in this cache alone."""
    results = place.store.current()
    return {
        machine: {
            name: [str(value) for value in values.tolist()]
            for name, values in results.columns(machine, COLUMNS, series=results.series(machine)).items()
            if name != "run"
        }
        for machine in results.machines
    }


def said_by_findings(place: Place) -> list[str]:
    """Return every change, without the last digits of numbers, which depend on the order of additions."""
    results, findings = place.store.current(), Findings(place.store.cache, ROOT)
    numbers = ("size", "low", "high", "confidence", "left")
    return [
        repr(replace(change, **{name: round(getattr(change, name), 9) for name in numbers}))
        for machine in results.machines
        for change in findings.of_machine(results, machine).changes
    ]


def said_by_alerts(place: Place) -> list[object]:
    """Return every alert with its log, without times."""
    alerts = place.alerts
    return [
        (
            *(alert.id, alert.state, alert.ending, alert.muted_until, alert.alert.topic),
            [member.key for member in alert.alert.members],
            [(event.who, event.what, event.state, event.note) for event in alerts.log(alert.id)],
        )
        for alert in alerts.alerts()
    ]


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path, forks):
    kills, parts, machines = 60, 4, ("h200-x4-unlocked", "sm_90-compiled")
    calm, disturbed = Place(str(tmp_path / "calm")), Place(str(tmp_path / "disturbed"))
    draw, killed = random.Random(kills), Counter[str]()
    for turn, (part, step) in enumerate(itertools.product(range(parts), STEPS), 1):
        if step == "ingest":
            arrive(calm, machines, part, parts)
            arrive(disturbed, machines, part, parts)
        status, moments = forks(calm, step, part)
        assert status == 0
        while killed.total() < kills * turn // (parts * len(STEPS)) and moments:
            kind = draw.choice(sorted(moments))
            # Early ones more often: what was done before a kill leaves fewer moments to the next run.
            number = 1 + int(draw.random() ** 3 * moments[kind])
            status, _ = forks(disturbed, step, part, kind, number)
            assert status in (0, -signal.SIGKILL)
            if status:
                killed[f"{step}: {kind}"] += 1
            elif step == "write":  # all is said, and saying it again would be another act
                break
            else:
                shutil.rmtree(disturbed.store.cache)
        assert forks(disturbed, step, part)[0] == 0
    print(f"{killed.total()} kills at {len(killed)} kinds of moments: {dict(sorted(killed.items()))}")
    assert killed.total() == kills
    assert said_by_store(disturbed) == said_by_store(calm)
    assert said_by_findings(disturbed) == said_by_findings(calm)
    assert said_by_alerts(disturbed) == said_by_alerts(calm)
    for number, because, said in map(json.loads, Path(disturbed.folder, "said").read_text().splitlines()):
        done = [event for event in disturbed.alerts.log(number) if event.note.endswith(because)]
        assert len(done) == (said == "Comment added." or said.startswith("Alert ")), (number, because, said)
