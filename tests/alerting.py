"""Steps and alerts as an analysis would give them, for tests of what is made of them; PostgreSQL and a webhook."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from lockstep.alerts.analysis.grouping import group
from lockstep.alerts.cause.attribution import explained
from lockstep.alerts.cause.change_facts import Facts, Step
from lockstep.alerts.database.schema import OUTBOX
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import Alert, FoundChange
from lockstep.record.series_name import SeriesName

#: Twenty commits: "0101…", "0202…" and so on.
COMMITS = [f"{number:02x}" * 20 for number in range(1, 21)]

#: What most points record.
TOOLCHAIN = {"python": "3.12", "torch": "2.11.0"}


def series(variant="triton", case="M=8,K=64", l2="cold", machine="h200", family="linear", quantity="latency"):
    return SeriesName(machine, family, family, variant, case, l2, quantity)


def step(first=10, last=None, by=0.05, name=None, **changes):
    """A step that becomes ``by`` slower at commit ``first`` (at the latest ``last``), and stays."""
    last = first if last is None else last
    size = math.log1p(by)
    change = FoundChange(
        series=name or series(),
        size=size,
        low=size - 0.004,
        high=size + 0.004,
        confidence=0.9999,
        first=first,
        last=last,
        before=COMMITS[first - 1],
        after=COMMITS[last],
        commit=COMMITS[first],
        between=tuple(COMMITS[first : last + 1]),
        reported_at=COMMITS[min(last + 1, 19)],
        left=size,
    )
    sides = (Facts(commit, toolchain=TOOLCHAIN) for commit in (COMMITS[first - 1], COMMITS[first]))
    return altered(Step(change, *sides), **changes)


def altered(base: Step, **changes) -> Step:
    """The step with other data, or with another change: ``good`` is the commit before it, ``before`` are its facts."""
    of_step = {name: value for name, value in changes.items() if name in Step.__dataclass_fields__}
    of_change = {name: value for name, value in changes.items() if name not in of_step}
    if "good" in of_change:
        of_change["before"] = of_change.pop("good")
    if "between" in of_change:
        of_change["after"] = of_change["between"][-1] if of_change["between"] else ""
    return replace(base, change=replace(base.change, **of_change), **of_step)


def told(*steps: Step, **changes) -> list[FoundChange]:
    return [replace(explained(one), **{"since": 1, **changes}) for one in steps]


def alerts(*steps: Step, **changes) -> list[Alert]:
    return group(told(*steps, **changes), COMMITS)


def queued(store: AlertStore, state: str) -> list[Any]:
    """The rows of the outbox whose messages are in this state, oldest first."""
    with store.database.read() as connection:
        return list(connection.execute(select(OUTBOX).where(OUTBOX.c.state == state).order_by(OUTBOX.c.id)))


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """URL of a PostgreSQL server of its own. Skips where there is none."""
    tools = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found = shutil.which("initdb", path=os.pathsep.join([*map(str, sorted(tools)), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip("no PostgreSQL here: initdb is not installed")
    bin_dir = Path(found).resolve().parent
    as_user = _other_user()
    folder.mkdir()
    if as_user:
        shutil.chown(folder, as_user["user"])
    data = folder / "data"
    init = [bin_dir / "initdb", "-D", data, "-U", "lockstep", "-A", "trust", "-N", "--no-locale", "-E", "UTF8"]
    subprocess.run(init, check=True, capture_output=True, cwd="/", **as_user)
    # A socket in the folder: a port that is free now may be taken when the server comes to listen.
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    control = [bin_dir / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
    subprocess.run([*control, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, cwd="/", **as_user)
    try:
        yield f"postgresql://lockstep@/postgres?host={folder}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, cwd="/", **as_user)


def _other_user():
    """PostgreSQL refuses to run as root."""
    if os.getuid():
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return {"user": pwd.getpwnam(name).pw_name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL refuses to run as root, and there is no other user")


class Service:
    """A webhook on this machine that keeps what it gets; ``answer`` says what it does with each."""

    def __init__(self):
        self.got = []
        self.answer = lambda handler: handler.send_response(200)
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.got.append(json.loads(body))
                with contextlib.suppress(BrokenPipeError):
                    service.answer(self)
                    self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"json://127.0.0.1:{self.server.server_port}/hook"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def titles(self):
        return [message["title"] for message in self.got]


def python(code: str, *arguments: str, **options) -> subprocess.Popen[str]:
    """Start a process that runs ``code`` in this tree."""
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")])}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True, **options
    )
