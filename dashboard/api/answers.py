"""Answers of the API, as models of ``dashboard.api.schema``. Their docstrings become summaries in OpenAPI."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from flask import request
from pydantic import BaseModel, ValidationError

from dashboard.api import schema
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.analysis.runner import AnalysisStatus
from lockstep.alerts.database.alert_row import NoSuchAlert
from lockstep.alerts.database.listing import Choice
from lockstep.alerts.database.states_and_actions import State
from lockstep.alerts.pages_service import AlertService
from lockstep.compare.two_sides import Side, compare
from lockstep.history.hex_digits import unpacked
from lockstep.history.model import STATES, Commit, Machine, Series, Trend
from lockstep.history.point_columns import COLUMNS
from lockstep.history.problem_tally import problem_json, tally
from lockstep.history.snapshot import Results
from lockstep.history.store import Store
from lockstep.notify.feed import alerts_json

#: Maximum number of series in one answer about trends.
MOST_SERIES = 100


class NotFound(ValueError):
    """A machine, commit, benchmark, alert or address in the request does not exist. The message says which one."""


class WrongQuery(ValueError):
    """A value of the query is wrong. The message names the key and what it may be."""


T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Served:
    """What the server answers from. Without an alert database ``service`` is ``None``."""

    results: Results
    findings: Findings
    service: AlertService | None


@dataclass(frozen=True)
class Part:
    """A page of a list: its items, and the cursor of the next page, which is "" on the last page."""

    items: Iterable[BaseModel]
    next: str = ""

    @property
    def address(self) -> str:
        """Address of the list's next page: the current request with the cursor ``next``."""
        parameters = [(key, value) for key, value in request.args.items(multi=True) if key != "cursor"]
        return f"{request.script_root}{request.path}?{urlencode([*parameters, ('cursor', self.next)])}"


def machines(served: Served) -> Part:
    """Return every machine."""

    def as_model(machine: Machine) -> schema.Machine:
        known = served.results.commits(machine.name)
        counts = {"commits": len(known), "series": served.results.count(machine.name)}
        return _of(schema.Machine, machine, **counts, newest_commit=known[-1].hash, branch="")

    return _part(list(served.results.machines.values()), as_model)


def commits(served: Served, machine: str) -> Part:
    """Return the commits of a machine, oldest first, those off the line last."""
    results = _known(served, machine)
    runs = {run.commit: run for run in results.runs if run.machine == machine}

    def as_model(commit: Commit) -> schema.Commit:
        run = runs[commit.hash]
        lines = [] if commit.apart else [""]
        return _of(schema.Commit, commit, toolchain=run.toolchain, clock_state=run.clock_state, lines=lines)

    return _part((*results.commits(machine), *results.apart(machine)), as_model)


def series(served: Served, machine: str) -> Part:
    """Return the series of a machine."""
    results = _known(served, machine)
    return _part(results.series(machine=machine), lambda entry: schema.Series(**_named(results, entry)))


def trends(served: Served, machine: str, benchmark: str) -> schema.Trends:
    """Return a benchmark's series over the commits; the query selects series by their parameters: variant=triton."""
    results = _known(served, machine)
    if benchmark not in results.benchmarks:
        raise NotFound(f"unknown benchmark {benchmark}: /api/v1/series/{machine} lists the benchmarks")
    series = results.series(machine=machine, benchmark=benchmark, axes=request.args.to_dict())
    return schema.Trends(
        commits=[commit.hash for commit in results.commits(machine)],
        series=[_trend(results, trend) for trend in results.trends(series[:MOST_SERIES])],
        left_out=max(len(series) - MOST_SERIES, 0),
    )


def _trend(results: Results, trend: Trend) -> schema.Trend:
    numbers = {name: getattr(trend, name).tolist() for name in ("commit", "value", "low", "high", "error")}
    states = [STATES[state] for state in trend.state.tolist()]
    versions = [results.versions[version] for version in trend.version.tolist()]
    work = [results.commit_of(digits) for digits in trend.same_work_as.tolist()]
    gpus = [unpacked(digits)[:8] for digits in trend.gpu.tolist()]
    named = _named(results, trend.series)
    return schema.Trend(**named, **numbers, state=states, version=versions, same_work_as=work, gpu=gpus)


def points(served: Served, machine: str, commit: str) -> Part:
    """Return every point at a commit: a full or shortened hash, or latest."""
    results = served.results
    columns = results.columns(machine, COLUMNS, _commit(served, machine, commit))
    page, following = _page(len(columns["series"]))
    points = results.points_of(machine, {name: values[page] for name, values in columns.items()})
    items = (_of(schema.Point, point, commit=point.run.commit, **_named(results, point.series)) for point in points)
    return Part(items, following)


def problems(served: Served) -> Part:
    """Return what could not be read."""
    return _part(served.results.problems, lambda problem: schema.Problem(**problem_json(problem)))


def notes(served: Served) -> Part:
    """Return what was read but differs from what asv writes."""
    return _part(served.results.notes, lambda problem: schema.Problem(**problem_json(problem)))


def problem_counts(served: Served) -> schema.ProblemCounts:
    """Return the number of problems and notes of each kind."""
    return schema.ProblemCounts(**tally(served.results).as_json())


def comparison(served: Served) -> schema.Comparison:
    """Return two measurements compared."""
    query, results, findings = _query(schema.CompareQuery), served.results, served.findings
    base = Side(query.base_machine, _commit(served, query.base_machine, query.base_commit), query.base_variant)
    head = Side(query.head_machine, _commit(served, query.head_machine, query.head_commit), query.head_variant)
    known = findings.of_machine(results, head.machine)
    compared = compare(results, base, head, query.quantity, findings.thresholds, query.suite, query.l2, known)
    start = query.cursor or 0
    listed = range(len(compared))[start : start + query.limit]
    return schema.Comparison(
        base=base,
        head=head,
        geomean=math.exp(compared.geomean),
        verdicts={str(verdict): count for verdict, count in compared.counts.items()},
        other_version=compared.other_version,
        one_sided=compared.one_sided,
        cases=[_of(schema.Case, compared[place]) for place in listed],
        left_out=max(len(compared) - start - query.limit, 0),
    )


def alerts(served: Served) -> Part:
    """Return alerts, newest first."""
    query, service = _query(schema.AlertsQuery), served.service
    # Version 1 of the API takes larger limits. Who asks for more follows the link to the next alerts.
    limit = min(query.limit, schema.MOST_ALERTS)
    if service is None:
        return Part([])
    states = frozenset(cast("State", state) for state in query.state) or None
    choice = Choice(states, query.family, query.machine, query.owner, query.search)
    tracked_alerts = service.alerts.part(choice, limit + 1, query.cursor)
    cursor_after = str(tracked_alerts[limit - 1].id) if len(tracked_alerts) > limit else ""
    found = alerts_json(tracked_alerts[:limit], service.site)
    return Part([schema.Alert(**alert) for alert in found], cursor_after)


def one_alert(served: Served, number: int) -> schema.LoggedAlert:
    """Return one alert with its log."""
    service = served.service
    try:
        if service is None or number >= 1 << 31:
            raise NoSuchAlert(f"unknown alert {number}")
        [content] = alerts_json([service.alerts.alert(number)], service.site)
    except NoSuchAlert as error:
        raise NotFound(f"unknown alert {number}: /api/v1/alerts lists the alerts") from error
    return schema.LoggedAlert(**content, log=service.alerts.log(number))


def _part(items: Sequence[T], as_model: Callable[[T], BaseModel]) -> Part:
    page, following = _page(len(items))
    return Part(map(as_model, items[page]), following)


def _page(count: int) -> tuple[slice, str]:
    """Return the part of ``count`` items that the query requests, and the next page's cursor: its first index."""
    query = _query(schema.Query)
    start = query.cursor or 0
    end = start + query.limit
    return slice(start, end), str(end) if end < count else ""


def _query(model: type[M]) -> M:
    """Return the query of the current request. Empty values are left out.

    Raise ``WrongQuery`` if a value is not what the model allows.
    """
    values = {
        key: given if key in model.model_fields and model.model_fields[key].annotation == list[str] else given[0]
        for key, given in request.args.lists()
        if given[0]
    }
    try:
        return model.model_validate(values)
    except ValidationError as error:
        [first, *_] = error.errors()
        key = ".".join(map(str, first["loc"]))
        reason = f"{first['msg'][0].lower()}{first['msg'][1:]}"
        raise WrongQuery(f"{key} is {str(first['input'])[:20]!r}: {reason}") from error


def _of(model: type[M], source: object, **more: object) -> M:
    """Return a model whose fields are attributes of ``source``, except for those given."""
    fields = {name: getattr(source, name) for name in model.model_fields if name not in more}
    return model.model_validate(fields | more)


def _known(served: Served, machine: str) -> Results:
    """Return the results, which have this machine."""
    if machine not in served.results.machines:
        raise NotFound(f"unknown machine {machine}: /api/v1/machines lists the machines")
    return served.results


def _commit(served: Served, machine: str, commit: str) -> str:
    """Return the full hash of a machine's commit, given by the beginning of the hash or "latest"."""
    hashes = [name.hash for name in _known(served, machine).commits(machine)]
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
