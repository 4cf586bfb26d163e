"""Routes for programs: JSON under ``/api/v1/``, the alerts' feed, health and metrics. All routes only read.

``/api/v1/`` describes the routes as OpenAPI, and ``docs/api.md`` how to use them. Version 1 remains compatible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from flask import Blueprint, Response, current_app, jsonify, request
from flask_limiter import Limiter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from dashboard.api import answers, schema
from dashboard.api.metrics import Health
from dashboard.auth.request_checks import RATES
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.connection import StateError
from lockstep.alerts.pages_service import AlertService
from lockstep.history.cache_folder import DamagedCache
from lockstep.history.store import Store, StoreError
from lockstep.notify.feed import MOST_ENTRIES, atom

_REFERENCE = "#/components/schemas/{model}"

#: HTTP statuses of errors in a request. All other errors have the status 503.
_STATUS: dict[type[Exception], int] = {answers.NotFound: 404, answers.WrongQuery: 400}


@dataclass(frozen=True)
class Operation:
    """A route that only reads.

    Attributes:
        path: as Flask writes it, below ``/api/v1``.
        content_of: returns the answer. Its docstring becomes the summary.
        answer: the model of the answer, or of its items.
        query: the model of the query; ``None`` for that of a list, or for an answer that takes no query.
        many: whether the answer is a list.
    """

    path: str
    content_of: Callable[..., Any]
    answer: type[BaseModel]
    query: type[BaseModel] | None = None
    many: bool = False


def document(operations: Sequence[Operation], root: str) -> dict[str, Any]:
    """Return the OpenAPI document of these routes. ``root`` is the path below which browsers reach the server."""
    models: dict[type[BaseModel], None] = dict.fromkeys((*(operation.answer for operation in operations), schema.Error))
    serialized: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "serialization") for model in models]
    _, definitions = models_json_schema(serialized, ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lockstep",
            "version": "1",
            "description": "Times are in seconds, intervals 95 % (asv's own: 99 %). Unknown values are null.",
        },
        "servers": [{"url": f"{root}/api/v1"}],
        "paths": {
            re.sub(r"<(?:int:)?(\w+)>", r"{\1}", operation.path): {"get": _get(operation)} for operation in operations
        },
        "components": {"schemas": definitions["$defs"]},
    }


def _get(operation: Operation) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if kind else "string"}}
        for kind, name in re.findall(r"<(int:)?(\w+)>", operation.path)
    ]
    summary = str(operation.content_of.__doc__).removeprefix("Return ").removesuffix(".")
    query = operation.query or (schema.Query if operation.many else None)
    properties = query.model_json_schema()["properties"] if query else {}
    parameters += [{"name": name, "in": "query", "schema": content} for name, content in properties.items()]
    content = {"$ref": _REFERENCE.format(model=operation.answer.__name__)}
    answers = {"200": {"type": "array", "items": content} if operation.many else content}
    answers["default"] = {"$ref": _REFERENCE.format(model="Error")}
    return {
        "summary": f"{summary[:1].upper()}{summary[1:]}",
        "parameters": parameters,
        "responses": {
            status: {
                "description": "the answer" if status == "200" else "an error",
                "content": {"application/json": {"schema": shape}},
            }
            for status, shape in answers.items()
        },
    }


#: The addresses below /api/v1, each with what it answers.
OPERATIONS = (
    Operation("/machines", answers.machines, schema.Machine, many=True),
    Operation("/commits/<machine>", answers.commits, schema.Commit, many=True),
    Operation("/series/<machine>", answers.series, schema.Series, many=True),
    Operation("/trends/<machine>/<benchmark>", answers.trends, schema.Trends),
    Operation("/points/<machine>/<commit>", answers.points, schema.Point, many=True),
    Operation("/compare", answers.comparison, schema.Comparison, schema.CompareQuery),
    Operation("/problems", answers.problems, schema.Problem, many=True),
    Operation("/problems/counts", answers.problem_counts, schema.ProblemCounts),
    Operation("/notes", answers.notes, schema.Problem, many=True),
    Operation("/alerts", answers.alerts, schema.Alert, schema.AlertsQuery, many=True),
    Operation("/alerts/<int:number>", answers.one_alert, schema.LoggedAlert),
)


def create_api(store: Store, service: AlertService | None, limiter: Limiter, findings: Findings) -> Blueprint:
    """Return the blueprint of all routes that are not pages.

    Args:
        service: the alerts; ``None`` if this server has no alert database.
        findings: the changes that the analysis found, with the thresholds of comparisons.
    """
    api = Blueprint("api", __name__)
    limiter.limit(RATES["api"])(api)
    health = CollectorRegistry()
    health.register(Health(store, service, findings))

    def answer(operation: Operation) -> None:
        def respond(**names: Any) -> Response:
            return _json(operation.content_of(answers.Served(store.current(), findings, service), **names))

        api.add_url_rule(f"/api/v1{operation.path}", operation.path.replace("/", " "), respond)

    for operation in OPERATIONS:
        answer(operation)
    described = cache(lambda root: document(OPERATIONS, root))
    api.add_url_rule("/api/v1/", "openapi", lambda: jsonify(described(request.script_root)))

    @api.after_request
    def say_analysis(response: Response) -> Response:
        """State in a header whether an analysis has succeeded: only then, an empty list means no alerts."""
        status = findings.status if request.path.startswith("/api/v1/alerts") else None
        if status:
            response.headers["Lockstep-Analysis"] = answers.analysis_state(status)
        return response

    @api.route("/api/<path:rest>")
    def nothing(rest: str) -> Response:
        raise answers.NotFound(f"unknown address /api/{rest}: docs/api.md lists the addresses")

    def failed(error: Exception) -> tuple[Response, int]:
        return jsonify({"error": str(error)}), _STATUS.get(type(error), 503)

    for kind in (*_STATUS, StoreError, StateError):
        api.register_error_handler(kind, failed)

    @api.errorhandler(DamagedCache)
    def again(_: DamagedCache) -> Any:
        """Answer the request once more: the store first makes the cache again."""
        try:
            return current_app.dispatch_request()
        except StoreError as error:
            return failed(error)

    @api.route("/feed.atom")
    def feed() -> Response:
        text = atom(service.alerts.changed_last(MOST_ENTRIES) if service else [], service.site if service else "")
        return Response(text, mimetype="application/atom+xml", headers={"Cache-Control": "max-age=60"})

    @api.route("/healthz")
    @limiter.exempt
    def healthz() -> tuple[Response, int]:
        try:
            current = store.current()
        except StoreError as error:
            return jsonify({"status": "broken", "error": str(error)}), 503
        state: dict[str, Any] = {"status": "ok", "machines": len(current.machines)}
        if service:
            service.version()
        findings.request_analysis(current)
        if status := findings.status:
            state |= answers.analysis_health(status)
        if troubled := answers.troubles(store, service):
            state |= {"status": "degraded", "trouble": troubled}
        return jsonify(state), 200

    @api.route("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(health), content_type=CONTENT_TYPE_LATEST)

    return api


def _json(content: BaseModel | answers.Part) -> Response:
    """Return the answer with ``content`` as JSON, and the address of the next page of a list.

    Each item of a list is written by a call of its own: while one call writes JSON, no other thread answers a request.
    """
    if isinstance(content, BaseModel):
        return Response(f"{content.model_dump_json()}\n", mimetype="application/json")
    items = ",".join(item.model_dump_json() for item in content.items)
    response = Response(f"[{items}]\n", mimetype="application/json")
    if content.next:
        response.headers["Link"] = f'<{content.address}>; rel="next"'
    return response
