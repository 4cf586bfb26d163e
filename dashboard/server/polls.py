"""Answer the polls of open pages for new results, and requests that the results or the alert database cannot answer.

A poll is a request of its own, not a callback: the browser holds back a callback while another one computes its input,
and drops the answer of a callback that starts again. A slow poll would keep a page empty.
"""

from __future__ import annotations

from hashlib import blake2b

from dash import Dash
from flask import Response, jsonify

from dashboard.api.answers import troubles
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.connection import StateError
from lockstep.alerts.pages_service import AlertService
from lockstep.history.store import Store, StoreError

#: Path of the polls, below the prefix of the pages. ``assets/live.js`` requests it.
PATH = "_live"


def add_live(app: Dash, store: Store, findings: Findings, service: AlertService | None) -> None:
    """Answer polls with the current version of what pages show, whether it changes soon, and what is not current."""

    def live() -> Response:
        results = store.current()
        findings.request_analysis(results)
        version = shown_version(store, findings, service)
        return jsonify(
            version=version, soon=findings.busy(results), trouble=" ".join(troubles(store, service).values())
        )

    def unusable(error: Exception) -> tuple[Response, int]:
        return Response(f"{error}.", mimetype="text/plain"), 503

    app.server.add_url_rule(f"{app.config.routes_pathname_prefix}{PATH}", view_func=live)
    for kind in (StoreError, StateError):
        app.server.register_error_handler(kind, unusable)


def shown_version(store: Store, findings: Findings, service: AlertService | None) -> str:
    """Return a text that changes whenever the results, their findings, the alerts or the notice on them change."""
    results = store.current()
    parts = [findings.version(results)]
    if service is not None:
        parts += [str(service.version()), service.request_analysis(results)]
    return blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()
