"""What programs read: JSON under ``/api/v1/``, the alerts' feed, badges, health and metrics. Nothing here writes.

``docs/api.md`` describes it; what it says of version 1 stays true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
from flask import Blueprint, Response, jsonify, request
from flask_limiter import Limiter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from dashboard.address import asked
from dashboard.api.badge import Kind, badge
from dashboard.api.metrics import Health
from dashboard.api.paging import MOST_ITEMS, Part, WrongQuery, limit_and_cursor, part_of
from dashboard.auth.security import RATES
from lockstep.alerts.analysis_status import AnalysisStatus
from lockstep.alerts.lifecycle import OPEN, State
from lockstep.alerts.listing import Choice
from lockstep.alerts.service import AlertService, rules
from lockstep.alerts.tracked import NoSuchAlert
from lockstep.compare.sides import Quantity, Side, compare
from lockstep.history.model import STATES, Commit, Point, Series
from lockstep.history.snapshot import Results
from lockstep.history.store import Store, StoreError
from lockstep.history.unread import problem_json, tally
from lockstep.notify.feed import MOST_ENTRIES, alerts_json, atom
from lockstep.suite.thresholds import Thresholds

#: Series of one answer about trends.
MOST_SERIES = 100

#: Alerts of an answer that asks for no other number; one takes about 2 kB.
MOST_ALERTS = 100

#: Badges and feeds are fetched by others' servers: nothing is lost if they keep one for so long.
_KEEP = "max-age=60"


class NotFound(ValueError):
    """There is no such thing; the message says what was asked for."""


def create_api(store: Store, service: AlertService | None, limiter: Limiter) -> Blueprint:
    """The blueprint of all that is not a page.

    Args:
        store: of the results.
        desk: the alerts; without it there are none.
        limiter: of the server.
    """
    api = Blueprint("api", __name__)
    limiter.limit(RATES["api"])(api)
    health = CollectorRegistry()
    health.register(Health(store, service))

    def answer(path: str, tell: Callable[..., Any]) -> None:
        def view(**names: Any) -> Response:
            told = tell(**names)
            if not isinstance(told, Part):
                return jsonify(_plain(told))
            response = jsonify(_plain(told.items))
            if told.next:
                response.headers["Link"] = f'<{told.address}>; rel="next"'
            return response

        api.add_url_rule(f"/api/v1{path}", endpoint=path.replace("/", " "), view_func=view)

    results = store.current
    answer("/machines", lambda: machines(results()))
    answer("/commits/<machine>", lambda machine: commits(results(), machine))
    answer("/series/<machine>", lambda machine: series(results(), machine))
    answer("/trends/<machine>/<benchmark>", lambda machine, benchmark: trends(results(), machine, benchmark))
    answer("/points/<machine>/<commit>", lambda machine, commit: points(results(), machine, commit))
    answer("/compare", lambda: comparison(results(), rules(service)))
    answer("/problems", lambda: problems(results()))
    answer("/problems/counts", lambda: tally(results()).as_json())
    answer("/notes", lambda: notes(results()))
    answer("/alerts", lambda: alerts(service))
    answer("/alerts/<int:number>", lambda number: one_alert(service, number))

    @api.route("/api/<path:rest>")
    def nothing(rest: str) -> Response:
        raise NotFound(f"there is no /api/{rest}; docs/api.md lists what there is")

    @api.errorhandler(NotFound)
    def missing(error: NotFound) -> tuple[Response, int]:
        return jsonify({"error": str(error)}), 404

    @api.errorhandler(WrongQuery)
    def wrong(error: WrongQuery) -> tuple[Response, int]:
        return jsonify({"error": str(error)}), 400

    @api.errorhandler(StoreError)
    def broken(error: StoreError) -> tuple[Response, int]:
        return jsonify({"error": str(error)}), 503

    @api.route("/feed.atom")
    def feed() -> Response:
        text = atom(service.alerts.changed_last(MOST_ENTRIES) if service else [], service.site if service else "")
        return Response(text, mimetype="application/atom+xml", headers={"Cache-Control": _KEEP})

    @api.route("/badge/alerts.svg")
    def alerts_badge() -> Response:
        chosen = asked(request.query_string.decode("utf-8", "replace"), "machine", "family", "label")
        choice = Choice(OPEN, chosen["family"], chosen["machine"])
        found, slower = service.alerts.count(choice) if service else (0, 0)
        said = f"{slower} slower" if slower else f"{found} open" if found else "steady"
        return _svg(badge(chosen["label"] or "performance", said, "bad" if slower else "plain" if found else "good"))

    @api.route("/badge/speedup/<machine>/<suite>/<variant>.svg")
    def speedup_badge(machine: str, suite: str, variant: str) -> Response:
        mean = _mean_speedup(results(), machine, suite, variant)
        said = "unknown" if mean is None else f"{mean:.2f}×"
        kind: Kind = "plain" if mean is None else "good" if mean >= 1 else "bad"
        return _svg(badge(f"{suite} {variant}", said, kind))

    @api.route("/healthz")
    def healthz() -> tuple[Response, int]:
        try:
            current = store.current()
            said: dict[str, Any] = {"status": "ok", "machines": len(current.machines)}
            if service:
                service.alerts.version()
            if service and service.runner:
                service.runner.request_analysis(current)
                said |= _analysis(service.runner.status)
        except (StoreError, ValueError) as error:
            return jsonify({"status": "broken", "error": str(error)}), 503
        return jsonify(said), 200

    @api.route("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(health), content_type=CONTENT_TYPE_LATEST)

    return api


def machines(results: Results) -> list[dict[str, Any]]:
    """Every machine: name, clock state, environments, how much it measured, its newest commit."""
    found = []
    for name, machine in results.machines.items():
        newest = results.commits(name)[-1]
        found.append(
            {
                **asdict(machine),
                "commits": len(results.commits(name)),
                "series": results.count(name),
                "newest_commit": newest.hash,
            }
        )
    return found


def commits(results: Results, machine: str) -> Part:
    """Commits of a machine, oldest first: hash, date in ms since 1970, subject, and the run's toolchain."""
    _known(results, machine)
    runs = {run.commit: run for run in results.runs_of(machine)}

    def tell(one: Commit) -> dict[str, Any]:
        run = runs[one.hash]
        return {**asdict(one), "toolchain": dict(run.toolchain), "clock_state": run.clock_state}

    return part_of(results.commits(machine), tell)


def series(results: Results, machine: str) -> Part:
    """Series of a machine: benchmark, its unit, and the parameters."""
    _known(results, machine)
    return part_of(results.series(machine=machine), lambda one: _named(results, one))


def trends(results: Results, machine: str, benchmark: str) -> dict[str, Any]:
    """Series of a benchmark over the commits; the query narrows by parameters (``?variant=triton&case=M=8``)."""
    _known(results, machine)
    if benchmark not in results.benchmarks:
        raise NotFound(f"there is no benchmark {benchmark}; /api/v1/series/{machine} lists them")
    wanted = results.series(machine=machine, benchmark=benchmark, axes=request.args.to_dict())
    found = []
    for trend in results.trends(wanted[:MOST_SERIES]):
        numbers = {name: getattr(trend, name).tolist() for name in ("value", "low", "high", "error")}
        numbers |= {"commit": trend.commit.tolist(), "state": [STATES[state] for state in trend.state.tolist()]}
        numbers |= {"version": [results.versions[version] for version in trend.version.tolist()]}
        found.append({**_named(results, trend.series), **numbers})
    hashes = [one.hash for one in results.commits(machine)]
    return {"commits": hashes, "series": found, "left_out": max(len(wanted) - MOST_SERIES, 0)}


def points(results: Results, machine: str, commit: str) -> Part:
    """Everything that was measured at a commit, by its full hash, a beginning of it, or ``latest``."""
    most, cursor = limit_and_cursor(MOST_ITEMS)
    start = cursor or 0
    found, total = results.some(machine, _commit(results, machine, commit), start, most)
    return Part([_point(results, point) for point in found], str(start + most) if start + most < total else "")


def problems(results: Results) -> Part:
    """What could not be read: path, sentence, reason and weight."""
    return part_of(results.problems, problem_json)


def notes(results: Results) -> Part:
    """What differs from what asv writes, and was read; as ``problems``."""
    return part_of(results.notes, problem_json)


def comparison(results: Results, thresholds: Thresholds) -> dict[str, Any]:
    """Two sides: ``?bm=MACHINE&bc=COMMIT&bv=VARIANT&hm=…&hc=…&hv=…&quantity=speedup|latency&suite=…&l2=…``."""
    keys = ("bm", "bc", "bv", "hm", "hc", "hv", "quantity", "suite", "l2")
    chosen = {key: request.args.get(key, "") for key in keys}
    base, head = (
        Side(chosen[f"{one}m"], _commit(results, chosen[f"{one}m"], chosen[f"{one}c"]), chosen[f"{one}v"])
        for one in "bh"
    )
    most, cursor = limit_and_cursor(MOST_ITEMS)
    start = cursor or 0
    quantity: Quantity = "latency" if chosen["quantity"] == "latency" else "speedup"
    found = compare(results, base, head, quantity, thresholds, chosen["suite"], chosen["l2"])
    return {
        "base": asdict(base),
        "head": asdict(head),
        "geomean": math.exp(found.geomean),
        "verdicts": dict(found.counts),
        "other_ruler": found.other_ruler,
        "one_sided": found.one_sided,
        "cases": [asdict(pair) | {"low": pair.low, "high": pair.high} for pair in found.pairs[start : start + most]],
        "left_out": max(len(found.pairs) - start - most, 0),
    }


def alerts(service: AlertService | None) -> Part:
    """Alerts, newest first; ``?state=new&state=muted&machine=…&family=…&owner=…&search=…`` narrows."""
    states = frozenset(cast("State", state) for state in request.args.getlist("state")) or None
    named = (request.args.get(name, "") for name in ("family", "machine", "owner", "search"))
    most, cursor = limit_and_cursor(MOST_ALERTS)
    if service is None:
        return Part([])
    found = service.alerts.part(Choice(states, *named), most + 1, cursor)
    more = str(found[most - 1].id) if len(found) > most else ""
    return Part(alerts_json(found[:most], service.site), more)


def one_alert(service: AlertService | None, number: int) -> dict[str, Any]:
    """One alert with its log."""
    try:
        if service is None or number >= 1 << 31:
            raise NoSuchAlert(f"there is no alert {number}")
        [told] = alerts_json([service.alerts.alert(number)], service.site)
    except NoSuchAlert as error:
        raise NotFound(f"there is no alert {number}") from error
    return told | {"log": [asdict(event) for event in service.alerts.log(number)]}


def _known(results: Results, machine: str) -> None:
    if machine not in results.machines:
        raise NotFound(f"there is no machine {machine}; /api/v1/machines lists them")


def _commit(results: Results, machine: str, commit: str) -> str:
    """Full hash of a machine's commit, from a beginning of it or "latest"."""
    _known(results, machine)
    every = [one.hash for one in results.commits(machine)]
    found = [one for one in every if commit and one.startswith(commit)]
    if commit == "latest":
        return every[-1]
    if len(found) != 1:
        what = "has no results of" if not found else "has several commits that begin with"
        raise NotFound(f"{machine} {what} {commit or 'no commit'}; /api/v1/commits/{machine} lists them")
    return found[0]


def _named(results: Results, one: Series) -> dict[str, Any]:
    benchmark = results.benchmarks[one.benchmark]
    told = {"machine": one.machine, "benchmark": one.benchmark, "unit": benchmark.unit, "suite": benchmark.suite}
    return told | {"quantity": benchmark.quantity, "parameters": dict(one.axes)}


def _point(results: Results, point: Point) -> dict[str, Any]:
    names = [name for name in Point.__slots__ if name not in ("series", "run", "commit")]
    told = {name: getattr(point, name) for name in names}
    return {**_named(results, point.series), "commit": point.run.commit, **told}


def _mean_speedup(results: Results, machine: str, suite: str, variant: str) -> float | None:
    """Geometric mean over the cases at their newest commits."""
    wanted = results.series(machine=machine, suite=suite, quantity="speedup", axes={"variant": variant})
    newest = [trend.value[np.isfinite(trend.value) & (trend.value > 0)][-1:] for trend in results.trends(wanted)]
    values = np.concatenate([np.empty(0), *newest])
    return float(np.exp(np.log(values).mean())) if len(values) else None


def _plain(value: Any) -> Any:
    """As JSON has it: no NaN and no infinity, which strict readers refuse."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value


def _analysis(status: AnalysisStatus) -> dict[str, Any]:
    """What ``/healthz`` says of the analysis. Pages can be read without one, so the answer's status stays 200."""
    state = "failing" if status.failing else "stale" if status.stale() else "ok" if status.succeeded else "pending"
    at = datetime.fromtimestamp(status.succeeded, UTC).isoformat(timespec="seconds") if status.succeeded else None
    analysis = {"state": state, "last_success": at, "failures": status.failures, "reason": status.reason}
    return {"status": "degraded" if state in ("failing", "stale") else "ok", "analysis": analysis}


def _svg(text: str) -> Response:
    # Opened by itself an SVG is a page: nothing in it may run, whatever a name says.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": _KEEP,
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    return Response(text, mimetype="image/svg+xml", headers=headers)
