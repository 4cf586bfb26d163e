"""Kill processes of a verb at random moments, and look for what should not be there afterwards.

A variable in the environment marks a verb's processes: children inherit it, forks show it too (/proc/PID/environ).
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from alerting import step
from project import KERNELS, Project, make_project

from lockstep.alerts.analysis.grouping import group
from lockstep.alerts.cause.attribution import explained
from lockstep.alerts.cause.change_facts import Facts
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import AnalysisResult
from lockstep.record.series_name import SeriesName

TOKEN = "LOCKSTEP_KILL_TOKEN"

#: Seconds within which all processes of a killed verb must be gone, and a verb that lost a child must have ended.
GONE_S, ENDED_S = 10.0, 120.0

#: Seconds within which everything is analysed again after a kill, on a busy machine.
ANALYSED_S = 90.0

START = "from lockstep.commands.cli import main; main()"


def marked(token: str) -> dict[int, str]:
    """Command lines of the living processes of a token, by process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            alive = (path / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            if alive and f"{TOKEN}={token}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
    return found


def survivors(token: str, seconds: float = GONE_S) -> dict[int, str]:
    """What is left of a token after so many seconds at most."""
    until = time.monotonic() + seconds
    while (left := marked(token)) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def held_locks(folder: Path) -> list[str]:
    """Lock files of a folder that somebody still holds after ``GONE_S``.

    The first thread of a killed process is gone, and its environment cannot be read any more, some milliseconds before
    its last one, which still holds the files.
    """
    until = time.monotonic() + GONE_S
    while (held := [str(path) for path in folder.rglob("*lock") if _held(path)]) and time.monotonic() < until:
        time.sleep(0.05)
    return held


def _held(path: Path) -> bool:
    try:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a folder
    return False


@dataclass
class Tally:
    """Kills of a verb, and what was wrong after them."""

    kills: int = 0
    roots: int = 0
    missed: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Place:
    """A project to measure, and a tree of results to analyse; every command runs with a home of its own."""

    folder: Path
    project: Project
    tree: Path

    @property
    def cache(self) -> Path:
        """Of the store of the tree."""
        return self.folder / "cache"

    @property
    def state(self) -> Path:
        """Database of the alerts of the tree."""
        return self.folder / "alerts.sqlite"

    @property
    def sources(self) -> list[str]:
        """Options that name the tree and its cache."""
        return ["--results", str(self.tree), "--cache", str(self.cache)]

    def start(self, command: list[str], token: str) -> subprocess.Popen[bytes]:
        """Start a verb in the project; what it prints goes to a file."""
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"PYTHONPATH": str(Path(__file__).parents[1]), "HOME": str(self.folder / "home"), TOKEN: token}
        with (self.folder / "printed").open("wb") as printed:
            return subprocess.Popen(
                [sys.executable, "-c", START, *command],
                cwd=self.project.root,
                env=environment,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def printed(self) -> str:
        """The end of what the last command printed."""
        return (self.folder / "printed").read_text(errors="replace")[-600:]


def make_place(folder: Path, machines: int = 2, commits: int = 80, series: int = 720) -> Place:
    """Write the project and the tree; the defaults have reading and analysing start pools."""
    sys.path.insert(0, str(Path(__file__).parent / "bench"))
    try:
        from make_tree import write_tree
    finally:
        sys.path.pop(0)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "home").mkdir()
    project = make_project(folder / "project")
    project.write("toy/product.py", KERNELS + "\n    # changed\n    CHANGED = 1\n")
    project.commit("Change a comment and a constant")
    write_tree(folder / "tree", machines, commits, series)
    base, head = project.git("rev-parse", "HEAD~1"), project.git("rev-parse", "HEAD")
    name = SeriesName("here", "product", "product", "twice", "M=2,K=1024,N=512", "warm", "speedup")
    ends = {"before": Facts(base), "after": Facts(head), "good": base}
    planted = step(by=2.0, name=name, between=(head,), **ends)
    seen = AnalysisResult(group([explained(planted)]), {"here": [base, head]})
    AlertStore(Database(folder / "bisect.sqlite")).sync(seen)
    return Place(folder, project, folder / "tree")


def _fresh(*parts: str) -> Callable[[Place], None]:
    def forget(place: Place) -> None:
        for part in parts:
            for path in place.folder.glob(part):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    return forget


@dataclass(frozen=True)
class Verb:
    """A verb: its command, its share of the kills, exit statuses of an undisturbed run, what makes it work anew."""

    command: Callable[[Place], list[str]]
    share: int
    statuses: tuple[int, ...] = (0,)
    forget: Callable[[Place], None] = lambda place: None


_BENCH = r"latency\(.*'M=2,K=1024,N=512', 'warm'"
_CASE = ["--case", "M=2", "--quick"]
_FOUND = "cache/*/analyses*"


def _alerts(place: Place) -> list[str]:
    return ["alerts", "list", "--no-list", "--state", str(place.state), *place.sources]


def _bisect(place: Place) -> list[str]:
    return ["bisect", "1", "--state", str(place.folder / "bisect.sqlite"), "--quick"]


#: Those that take long have fewer of the kills.
VERBS = {
    "ingest": Verb(lambda place: ["ingest", *place.sources], 8, (0,), _fresh("cache")),
    "changes": Verb(lambda place: ["changes", *place.sources], 5, (0, 1), _fresh(_FOUND)),
    "alerts list": Verb(_alerts, 5, (0,), _fresh(_FOUND)),
    "measure": Verb(lambda place: ["measure", "product", *_CASE], 4, (0, 2)),
    "code diff": Verb(
        lambda place: ["code", "diff", "HEAD~1", "--target", "sm_90"], 4, (0,), _fresh("home/.cache/lockstep")
    ),
    "run": Verb(
        lambda place: ["run", "HEAD^!", "--quick", "--machine", "here", "--bench", _BENCH],
        3,
        (0, 2),
        _fresh("project/results"),
    ),
    "publish": Verb(lambda place: ["publish", "--no-pull"], 4, (0,), _fresh("project/.asv/html")),
    "gate": Verb(lambda place: ["gate", "--base", "HEAD~1", "--seed", "1", *_CASE], 2, (0, 1, 2)),
    "bisect": Verb(_bisect, 1, (0, 1, 2, 3)),
}

#: The dashboard's share.
DASHBOARD = 4


def run_whole(place: Place, verb: Verb) -> tuple[float, str]:
    """Run a verb undisturbed: seconds, and what was wrong ("" nothing)."""
    verb.forget(place)
    token, began = uuid.uuid4().hex, time.monotonic()
    process = place.start(verb.command(place), token)
    try:
        status = process.wait(ENDED_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return ENDED_S, f"does not end: {place.printed()}"
    seconds = time.monotonic() - began
    if status not in verb.statuses:
        return seconds, f"ends with {status}: {place.printed()}"
    left = survivors(token)
    return seconds, f"leaves {left}" if left else ""


def kill_once(place: Place, verb: Verb, seconds: float, draw: random.Random, tally: Tally) -> None:
    """Start a verb, kill one of its processes at a random moment of its usual ``seconds``, and look."""
    verb.forget(place)
    token = uuid.uuid4().hex
    process = place.start(verb.command(place), token)
    time.sleep(draw.uniform(0.02, 0.9 * seconds))
    pids = sorted(marked(token))
    # Children are rarer than their parents, and are what is of interest.
    children = [pid for pid in pids if pid != process.pid]
    victim = draw.choice(children) if children and draw.random() < 0.6 else process.pid
    try:
        if process.poll() is not None:
            raise ProcessLookupError
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        tally.missed += 1
    else:
        tally.kills += 1
        tally.roots += victim == process.pid
    what = "itself" if victim == process.pid else "a child"
    try:
        process.wait(ENDED_S)
    except subprocess.TimeoutExpired:
        tally.wrong.append(f"killed {what}: does not end within {ENDED_S:g} s: {marked(token)}")
        process.kill()
        process.wait()
    if left := survivors(token):
        tally.wrong.append(f"killed {what}: {left} survived")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    if held := held_locks(place.folder):
        tally.wrong.append(f"killed {what}: {held} is held")


class Server:
    """``lockstep dashboard`` on the tree."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.token = uuid.uuid4().hex
        command = ["dashboard", "--port", "0", "--workers", "2", "--state", str(place.state), *place.sources]
        self.process = place.start(command, self.token)
        until = time.monotonic() + ENDED_S
        while "http://" not in (text := (place.folder / "printed").read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        self.address = text.split(" at ", 1)[1].split("/ ")[0]

    def get(self, path: str) -> str:
        """The answer; several tries, as a worker that serves may be killed."""
        for last in (False, False, False, True):
            try:
                with urllib.request.urlopen(f"{self.address}{path}", timeout=60) as answer:
                    return str(answer.read().decode())
            except OSError:
                if last:
                    raise
                time.sleep(0.5)
        return ""

    def metric(self, name: str) -> float:
        """Value of a gauge without labels."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[1])

    def analysed(self, since: float) -> str:
        """Wait until an analysis has succeeded since then; what is wrong, "" nothing."""
        until = time.monotonic() + ANALYSED_S
        while time.monotonic() < until:
            health = json.loads(self.get("/healthz"))["analysis"]
            failed = self.metric("lockstep_analysis_failed")
            success = self.metric("lockstep_analysis_last_success_timestamp_seconds")
            if success >= since:
                # Both workers, whichever answers.
                said = {self.metric("lockstep_analysis_failed") for _ in range(6)}
                return "" if said == {0.0} else f"the metric says {said} after a success"
            if health["state"] == "ok" and failed:
                return f"health says ok, the metric {failed}"
            time.sleep(0.2)
        return f"nothing is analysed within {ANALYSED_S:g} s: {health}"

    def end(self) -> None:
        """End it as a service manager does, and by force if need be."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def kill_dashboard(place: Place, kills: int, draw: random.Random, tally: Tally) -> None:
    """Kill processes of the dashboard while it analyses: its master, its workers, the analysis, pools, guards."""
    server: Server | None = None
    for _ in range(kills):
        if server is None:
            server = Server(place)
            server.get("/healthz")
        began = time.time()
        # Nothing is found: an analysis is due.
        _fresh(_FOUND, "cache/*/analysis-*.json")(place)
        server.get("/healthz")
        time.sleep(draw.uniform(0.0, 6.0))
        pids = sorted(marked(server.token))
        children = [pid for pid in pids if pid != server.process.pid]
        victim = draw.choice(children) if children and draw.random() < 0.85 else server.process.pid
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            tally.missed += 1
            continue
        tally.kills += 1
        if victim == server.process.pid:
            tally.roots += 1
            server.process.wait()
            if left := survivors(server.token):
                tally.wrong.append(f"killed itself: {left} survived")
            if held := held_locks(place.folder):
                tally.wrong.append(f"killed itself: {held} is held")
            server = None
            continue
        try:
            if wrong := server.analysed(began):
                tally.wrong.append(f"killed a child: {wrong}")
        except OSError as error:
            tally.wrong.append(f"killed a child: it does not answer ({error})")
            server.end()
            server = None
    if server is not None:
        server.end()
        if left := survivors(server.token):
            tally.wrong.append(f"ended: {left} survived")
    if held := held_locks(place.folder):
        tally.wrong.append(f"ended: {held} is held")
