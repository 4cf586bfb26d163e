"""A dashboard with everything on: planted results, their findings and alerts, behind a proxy that names people."""

import datetime
import json
import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from history import Here, commits_of, write_history
from werkzeug.serving import make_server

from dashboard.address import CommitAddress, FamilyAddress, SeriesAddress
from dashboard.auth.credentials import USER_HEADER, Access, read_networks
from dashboard.pages.overview_table import cells_of, in_order
from dashboard.server.app import create_app
from dashboard.server.serve import warm
from lockstep.alerts.analysis.analyse import analyse_results
from lockstep.alerts.analysis.analysis_file import AnalysisFile
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.alerts.database.connection import Database
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.pages_service import AlertService
from lockstep.history.store import Store
from lockstep.suite.thresholds import Thresholds

NAME, SECRET = "Mira Example", "s" * 32

#: How a place knows people: by a proxy on this machine. The proxy adds ``KNOWN`` to the requests of one of them.
ACCESS = Access(read_networks(["127.0.0.1"]), SECRET)
KNOWN = {USER_HEADER: f"{SECRET} {NAME}"}

NEW_TORCH = {"torch": "2.13.0"}

#: Ports at which an application was served.
_FREE: list[int] = []


@dataclass
class Place:
    """The tree, its store, findings and alerts, and the application that shows them."""

    root: Path
    commits: list[str]
    store: Store
    service: AlertService
    findings: Findings
    app: object

    @property
    def client(self):
        return self.app.server.test_client()

    @property
    def pages(self):
        """The address of a page of each kind, by the name of its module in ``dashboard/pages``."""
        [one] = self.service.alerts.alerts(machine="h200", family="linear")
        return {
            "overview": "/?machine=h200&since=all",
            "family": FamilyAddress("h200", "linear", ("M=8,K=64",), "cold").link(),
            "series": SeriesAddress("h200", "linear", "triton", "M=8,K=64", "cold").link(),
            "commit": CommitAddress(self.commits[12], "h200").link(),
            "compare": f"/compare?bc={self.commits[11]}&hc={self.commits[12]}",
            "alerts": "/alerts",
            "alert": f"/alert/{one.id}",
            "machines": "/machines",
        }


def place(folder: Path, access: Access | None = None, commits: int = 16) -> Place:
    """Two H200 whose kernel is 6 % slower from commit 12, and a B200 at every second one with a new torch from 8."""
    repo = folder / "repo"
    hashes = commits_of(repo, commits)
    root = repo / "results"

    def slower(n):
        return Here(slower=1.06 if n >= 12 else 1.0, code="c2" if n >= 12 else "c1")

    write_history(root, "h200", hashes, slower)
    write_history(root, "h200-locked", hashes, slower)
    write_history(root, "b200", hashes, lambda n: Here(host=NEW_TORCH if n >= 8 else {}), every=2)
    store = Store.open(root, cache=folder / "cache", patience=0.0)
    service = AlertService(AlertStore(Database(folder / "alerts.sqlite")), site="https://bench.example.org")
    now = datetime.datetime.fromtimestamp(store.current().machines["h200"].last_date / 1000, datetime.UTC)
    results, kept, packages = store.current(), AnalysisFile(store.cache), ("kernels",)
    found = analyse_results(results, Thresholds(), Ranges(root, packages), now, kept)
    service.alerts.sync(found)
    findings = Findings(store.cache, root, packages)
    app = create_app(store, service, access or ACCESS, findings)
    return Place(root, hashes, store, service, findings, app)


@contextmanager
def serving(app):
    """Serve a Dash application on 127.0.0.1; gives the address.

    A port that is free again is taken first: a browser keeps compiled scripts by the address.
    """
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    warm(app)
    server = make_server("127.0.0.1", _FREE.pop() if _FREE else 0, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        _FREE.append(server.port)


def call(
    client, output, inputs, state=(), changed="", headers=None, remote="127.0.0.1", base="http://localhost", port=""
):
    """Make the callback of ``output`` answer; gives the response."""
    [entry] = [one for one in client.get("/_dash-dependencies").json if output in one["output"]]
    given = [dict(part, value=value) for part, value in zip(entry["inputs"], inputs, strict=True)]
    kept = [dict(part, value=value) for part, value in zip(entry["state"], state, strict=True)]
    names = entry["output"].strip(".").split("...")
    outputs = [dict(zip(("id", "property"), name.split(".", 1), strict=True)) for name in names]
    body = {
        "output": entry["output"],
        "outputs": outputs if len(outputs) > 1 else outputs[0],
        "inputs": given,
        "state": kept,
        "changedPropIds": [changed or f"{given[0]['id']}.{given[0]['property']}"],
    }
    environ = {"REMOTE_ADDR": remote, "REMOTE_PORT": str(port)}
    return client.post("/_dash-update-component", json=body, headers=headers or {}, environ_base=environ, base_url=base)


def act(
    client, number, doing, because="", until="", headers=None, remote="127.0.0.1", base="http://localhost", port=""
):
    """Press a button of an alert's page; what the page then says."""
    clicks = [0] * 7
    state = (because, until, number)
    answer = call(client, "alert-said.children", clicks, state, f"alert-{doing}.n_clicks", headers, remote, base, port)
    assert answer.status_code == 200, answer.text
    return answer.json["response"]["alert-said"]["children"]


def words(component):
    """All that a component shows, as one text."""
    return json.dumps(component.to_plotly_json() if hasattr(component, "to_plotly_json") else component, default=vars)


def table_of(results, machine, statuses):
    """All rows of the overview's table."""
    return cells_of(machine, in_order(statuses))


def cells(table):
    """Return the overview's table of families as (sign, class, tooltip) of each cell, by family and shape in order."""
    region = table.children[0]
    rows = region.children[2].children
    return {
        row.children[0].children.children: [
            (cell.children, cell.className, cell.title) for cell in row.children[-1].children.children
        ]
        for row in rows
    }
