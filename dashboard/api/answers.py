"""Answers of the API to a query, as plain data for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
from flask import request

from dashboard.api.paging import MOST_ITEMS, Part, limit_and_cursor, part_of
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.analysis.status import AnalysisStatus
from lockstep.alerts.database.alert_row import NoSuchAlert
from lockstep.alerts.database.listing import Choice
from lockstep.alerts.database.states_and_actions import State
from lockstep.alerts.pages_service import AlertService
from lockstep.compare.match_two_sides import Quantity, Side, compare
from lockstep.history.model import STATES, Commit, Point, Series, Trend
from lockstep.history.problem_tally import problem_json
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.notify.feed import alerts_json

#: Maximum number of series in one answer about trends.
MOST_SERIES = 100

#: Default and maximum number of alerts in one answer. An alert takes about 2 kB and 0.2 ms of CPU.
USUAL_ALERTS, MOST_ALERTS = 100, 1000


class NotFound(ValueError):
    """A machine, commit, benchmark, alert or address in the request does not exist. The message says which one."""


def machines(results: Results) -> list[dict[str, Any]]:
    """Return every machine: name, clock state, environments, number of commits and series, newest commit."""
    entries = []
    for name, machine in results.machines.items():
        newest = results.commits(name)[-1]
        entries.append(
            {
                **asdict(machine),
                "commits": len(results.commits(name)),
                "series": results.count(name),
                "newest_commit": newest.hash,
            }
        )
    return entries


def commits(results: Results, machine: str) -> Part:
    """Return the commits of a machine, oldest first: hash, date in ms since 1970, subject, toolchain of the run.

    The commits off the line follow those of the line. "apart" marks them, "fork" is where they left the line.
    "lines" names the branches whose line holds the commit ("" for the first), "by_date" marks what git could not place.
    """
    _known(results, machine)
    runs = {run.commit: run for run in results.runs if run.machine == machine}

    def as_json(commit: Commit) -> dict[str, Any]:
        run = runs[commit.hash]
        return {
            **asdict(commit),
            "apart": commit.apart,
            "toolchain": dict(run.toolchain),
            "clock_state": run.clock_state,
        }

    return part_of((*results.commits(machine), *results.apart(machine)), as_json)


def series(results: Results, machine: str) -> Part:
    """Return benchmark, unit and parameters of each series of a machine."""
    _known(results, machine)
    return part_of(results.series(machine=machine), lambda entry: _named(results, entry))


def trends(results: Results, machine: str, benchmark: str) -> dict[str, Any]:
    """Return a benchmark's series and their values at each commit. ``?variant=triton&case=M=8`` selects series."""
    _known(results, machine)
    if benchmark not in results.benchmarks:
        raise NotFound(f"unknown benchmark {benchmark}: /api/v1/series/{machine} lists the benchmarks")
    series = results.series(machine=machine, benchmark=benchmark, axes=request.args.to_dict())
    hashes = [commit.hash for commit in results.commits(machine)]
    entries = (_trend(results, trend) for trend in results.trends(series[:MOST_SERIES]))
    return {"commits": hashes, "series": entries, "left_out": max(len(series) - MOST_SERIES, 0)}


def _trend(results: Results, trend: Trend) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name in ("value", "low", "high", "error"):
        values = getattr(trend, name).tolist()
        numbers[name] = [value if math.isfinite(value) else None for value in values]
    numbers |= {"commit": trend.commit.tolist(), "state": [STATES[state] for state in trend.state.tolist()]}
    numbers |= {"version": [results.versions[version] for version in trend.version.tolist()]}
    return {**_named(results, trend.series), **numbers}


def points(results: Results, machine: str, commit: str) -> Part:
    """Return the numbers of a machine at a commit. ``commit`` is a full or shortened hash, or ``latest``."""
    limit, cursor = limit_and_cursor(MOST_ITEMS)
    start = cursor or 0
    page_points, total = results.page(machine, _commit(results, machine, commit), start, limit)
    return Part([_point(results, point) for point in page_points], str(start + limit) if start + limit < total else "")


def problems(results: Results) -> Part:
    """Return the result files that could not be read or only in part, in the fields of ``problem_json``."""
    return part_of(results.problems, problem_json)


def notes(results: Results) -> Part:
    """Return the files that were read although they differ from asv's format, in the fields of ``problem_json``."""
    return part_of(results.notes, problem_json)


def comparison(results: Results, findings: Findings) -> dict[str, Any]:
    """Compare base (``?bm=MACHINE&bc=COMMIT&bv=VARIANT``) with head (``&hm=…&hc=…&hv=…``).

    ``&quantity=speedup|latency``, ``&suite=…`` and ``&l2=…`` select what is compared.
    """
    keys = ("bm", "bc", "bv", "hm", "hc", "hv", "quantity", "suite", "l2")
    chosen = {key: request.args.get(key, "") for key in keys}
    base, head = (
        Side(chosen[f"{side}m"], _commit(results, chosen[f"{side}m"], chosen[f"{side}c"]), chosen[f"{side}v"])
        for side in "bh"
    )
    limit, cursor = limit_and_cursor(MOST_ITEMS)
    start = cursor or 0
    quantity: Quantity = "latency" if chosen["quantity"] == "latency" else "speedup"
    known = findings.of_machine(results, head.machine)
    compared = compare(results, base, head, quantity, findings.thresholds, chosen["suite"], chosen["l2"], known)
    return {
        "base": asdict(base),
        "head": asdict(head),
        "geomean": math.exp(compared.geomean),
        "verdicts": dict(compared.counts),
        "other_ruler": compared.other_version,
        "one_sided": compared.one_sided,
        "cases": [
            asdict(pair) | {"low": pair.low, "high": pair.high} for pair in compared.pairs[start : start + limit]
        ],
        "left_out": max(len(compared.pairs) - start - limit, 0),
    }


def alerts(service: AlertService | None) -> Part:
    """Return alerts, newest first; ``?state=new&state=muted&machine=…&family=…&owner=…&search=…`` filters them."""
    states = frozenset(cast("State", state) for state in request.args.getlist("state")) or None
    named = (request.args.get(name, "") for name in ("family", "machine", "owner", "search"))
    asked, cursor = limit_and_cursor(USUAL_ALERTS)
    # Version 1 of the API takes larger limits. Who asks for more follows the link to the next alerts.
    limit = min(asked, MOST_ALERTS)
    if service is None:
        return Part([])
    tracked_alerts = service.alerts.part(Choice(states, *named), limit + 1, cursor)
    cursor_after = str(tracked_alerts[limit - 1].id) if len(tracked_alerts) > limit else ""
    return Part(alerts_json(tracked_alerts[:limit], service.site), cursor_after)


def one_alert(service: AlertService | None, number: int) -> dict[str, Any]:
    """Return one alert, and the log of the events that changed its state."""
    try:
        if service is None or number >= 1 << 31:
            raise NoSuchAlert(f"unknown alert {number}")
        [content] = alerts_json([service.alerts.alert(number)], service.site)
    except NoSuchAlert as error:
        raise NotFound(f"unknown alert {number}: /api/v1/alerts lists the alerts") from error
    return content | {"log": [asdict(event) for event in service.alerts.log(number)]}


def _known(results: Results, machine: str) -> None:
    if machine not in results.machines:
        raise NotFound(f"unknown machine {machine}: /api/v1/machines lists the machines")


def _commit(results: Results, machine: str, commit: str) -> str:
    """Return the full hash of a machine's commit, given by the beginning of the hash or "latest"."""
    _known(results, machine)
    hashes = [name.hash for name in results.commits(machine)]
    matches = [name for name in hashes if commit and name.startswith(commit)]
    if commit == "latest":
        return hashes[-1]
    if len(matches) != 1:
        problem = "has no results of" if not matches else "has several commits that begin with"
        raise NotFound(f"{machine} {problem} {commit!r}; /api/v1/commits/{machine} lists the commits with results")
    return matches[0]


def _named(results: Results, series: Series) -> dict[str, Any]:
    benchmark = results.benchmarks[series.benchmark]
    named = {"machine": series.machine, "benchmark": series.benchmark, "unit": benchmark.unit, "suite": benchmark.suite}
    return named | {"quantity": benchmark.quantity, "parameters": dict(series.axes)}


def _point(results: Results, point: Point) -> dict[str, Any]:
    names = [name for name in Point.__slots__ if name not in ("series", "run", "commit")]
    fields = {name: getattr(point, name) for name in names}
    return {**_named(results, point.series), "commit": point.run.commit, **fields}


def mean_speedup(results: Results, machine: str, suite: str, variant: str) -> float | None:
    """Return the geometric mean of a variant's speedups, each case at its newest commit; ``None`` without numbers."""
    series = results.series(machine=machine, suite=suite, quantity="speedup", axes={"variant": variant})
    newest = [trend.value[np.isfinite(trend.value) & (trend.value > 0)][-1:] for trend in results.trends(series)]
    values = np.concatenate([np.empty(0), *newest])
    return float(np.exp(np.log(values).mean())) if len(values) else None


def analysis_state(status: AnalysisStatus) -> str:
    """Return "failing", "stale" (no success for two hours), "ok" or "pending" (no analysis so far)."""
    return "failing" if status.failing else "stale" if status.stale() else "ok" if status.succeeded else "pending"


def analysis_health(status: AnalysisStatus) -> dict[str, Any]:
    """Return the state of the analysis for ``/healthz``.

    Pages work without an analysis, so a failing analysis makes the state "degraded" and the HTTP status stays 200.
    """
    state = analysis_state(status)
    at = datetime.fromtimestamp(status.succeeded, UTC).isoformat(timespec="seconds") if status.succeeded else None
    analysis = {"state": state, "last_success": at, "failures": status.failures, "reason": status.reason}
    return {"status": "degraded" if state in ("failing", "stale") else "ok", "analysis": analysis}


def troubles(store: Store, service: AlertService | None) -> dict[str, str]:
    """Return why the "results" or the "alerts" that the server shows may be old; {} if both are up to date."""
    parts = {"results": store.trouble.text, "alerts": service.last.trouble.text if service else ""}
    return {part: f"{text[0].upper()}{text[1:]}." for part, text in parts.items() if text}
