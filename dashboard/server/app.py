"""The Dash application: layout, routing and callbacks of all pages, and the polls of open pages for new results.

A poll is a request of its own, not a callback: the browser holds back a callback while another one computes its input,
and drops the answer of a callback that starts again. A slow poll would keep a page empty.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from flask import Response, jsonify, redirect, send_file

from dashboard.address import CommitAddress, FamilyAddress, OverviewAddress, SeriesAddress, link, parse, query_values
from dashboard.api.answers import troubles
from dashboard.api.routes import create_api
from dashboard.auth.credentials import Access
from dashboard.auth.request_checks import RequestSecurity
from dashboard.charts.theme import MANTINE
from dashboard.pages import alert, alerts, commit, compare, family, machines, overview, series
from dashboard.pages.overview_choice import opening_machine
from dashboard.pages.parts import back_link, in_browser, nothing_measured, notice, notice_of, waiting
from lockstep.alerts.analysis.latest_findings import Findings
from lockstep.alerts.database.alert_row import now_ms
from lockstep.alerts.database.connection import StateError
from lockstep.alerts.pages_service import AlertService
from lockstep.history.store import Store, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: Path of the polls. ``assets/live.js`` requests it.
_LIVE_PATH = "/_live"

_INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}<script src="{scheme}"></script></head>
    <body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""

#: Pages in the navigation bar, in order.
_NAVIGATION = {"Overview": "/", "Compare": "/compare", "Alerts": "/alerts", "Machines": "/machines"}

#: All charts consist of lines, points or a heatmap. This third of plotly.js draws all of these.
PLOTLY = Path(__file__).parents[1] / "vendor" / "plotly-cartesian-4.1.1.min.js"

#: Path at which Dash's charts request the whole of plotly.js.
_PLOTLY_PATH = "/_dash-component-suites/plotly/package_data/plotly.min.js"


def create_app(
    store: Store,
    service: AlertService | None = None,
    access: Access | None = None,
    findings: Findings | None = None,
    root: str = "",
) -> Dash:
    """Return the dashboard of a results folder; ``.server`` is its WSGI application.

    Args:
        service: the alerts; without it, the alert pages say that this server has no alerts.
        access: how people who may act on alerts are identified; by default nobody is identified.
        findings: the changes that the analysis found; by default with the default thresholds and without a process that
            analyses new results.
        root: the path below which browsers reach this server, such as "/lockstep"; "" for a host of its own.
    """
    findings = findings or Findings(store.cache, store.root)
    app = Dash(
        __name__,
        requests_pathname_prefix=f"{root}/",
        routes_pathname_prefix="/",
        assets_folder=str(Path(__file__).parents[1] / "assets"),
        title="Lockstep",
        update_title="",
        assets_ignore=r"before\.js",
        suppress_callback_exceptions=True,
        add_log_handler=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        hooks={"callback_resolved": "window.lockstepAnswered"},
    )
    # Set the colour scheme before anything is drawn. Otherwise a dark page begins with a white flash.
    app.index_string = _INDEX.replace("{scheme}", app.get_asset_url("before.js"))
    app.layout = _shell
    app.server.wsgi_app = below(app.server.wsgi_app, root)
    security = RequestSecurity(app, access or Access())
    app.server.register_blueprint(create_api(store, service, security.limiter, findings))
    app.server.add_url_rule(_PLOTLY_PATH, "plotly", lambda: send_file(PLOTLY))
    add_live(app, store, findings, service)
    app.server.add_url_rule("/alerts/<int:number>", "alert_of_list", lambda number: redirect(f"{root}/alert/{number}"))

    @app.callback(
        Output("page", "children"),
        Output("title", "data"),
        # Set the version with the page. Otherwise the first poll would compute and send everything again.
        Output("version", "data"),
        Input("url", "pathname"),
        State("url", "search"),
    )
    def route(path: str | None, search: str | None) -> tuple[Any, str, str]:
        # The page is read after this version. If something changes in between, the next poll fills the page again.
        version = shown_version(store, findings, service)
        shown, title = page(store, (path or "/").removeprefix(root) or "/", search or "", service, security, findings)
        # The title of a notice says what there is not.
        return shown, f"{notice_of(shown) or title} · Lockstep", version

    scheme = Input("scheme", "computedColorScheme"), State("colours", "data")
    in_browser(app, "title", Output("title", "modified_timestamp"), Input("title", "data"), at_once=True)
    in_browser(app, "colours", Output("colours", "data"), *scheme, at_once=True)
    in_browser(app, "wide", Output("filters", "open"), Input("title", "data"), at_once=True)
    in_browser(app, "visit", Output("visit", "data"), Input("now", "data"), at_once=True)
    clientside: Any = app.clientside_callback
    clientside(ClientsideFunction("live", "shown"), Input("version", "data"))
    overview.register(app, store, findings, service)
    family.register(app, store, findings)
    series.register(app, store, findings, service)
    commit.register(app, store, findings)
    compare.register(app, store, findings)
    machines.register(app, store)
    if service is not None:
        alerts.register(app, store, findings, service)
        alert.register(app, store, findings, service, security)
    return app


def add_live(app: Dash, store: Store, findings: Findings, service: AlertService | None) -> None:
    """Answer polls with the current version of what pages show, whether it changes soon, and what is not current."""

    def live() -> Response:
        results = store.current()
        version, trouble = shown_version(store, findings, service), " ".join(troubles(store, service).values())
        return jsonify(version=version, soon=findings.busy(results), trouble=trouble)

    def unusable(error: Exception) -> tuple[Response, int]:
        return Response(f"{error}.", mimetype="text/plain"), 503

    app.server.add_url_rule(_LIVE_PATH, view_func=live)
    for kind in (StoreError, StateError):
        app.server.register_error_handler(kind, unusable)


def shown_version(store: Store, findings: Findings, service: AlertService | None) -> str:
    """Return a text that changes whenever the results, their findings, the alerts or the notice on them change."""
    results = store.current()
    findings.request_analysis(results)
    parts = [findings.version(results), str(findings.analysing)]
    if service is not None:
        parts += [str(service.version()), service.trouble]
    return blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def below(application: WSGIApplication, root: str) -> WSGIApplication:
    """Return ``application`` as a part of a site, whose pages are all below the path ``root``."""

    def serve(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        environ["SCRIPT_NAME"] = root
        if path == root or path.startswith(f"{root}/"):
            environ["PATH_INFO"] = path.removeprefix(root) or "/"
        return application(environ, start)

    return serve if root else application


def page(
    store: Store,
    path: str,
    search: str,
    service: AlertService | None = None,
    security: RequestSecurity | None = None,
    findings: Findings | None = None,
) -> tuple[Any, str]:
    """Return the page of an address, and its title; a page without a title of its own has "" or that of a notice."""
    if path == "/alerts":
        return alerts.layout(service, search), "Alerts"
    if path.startswith("/alert/") and security is not None:
        return alert.layout(service, security, path.removeprefix("/alert/"))
    results = store.current()
    if not results.machines:
        return nothing_measured(results), ""
    if path == "/compare":
        sides = [part[:24] for part in query_values(search, "bm", "bc", "hm", "hc").values() if part]
        return compare.layout(results, search), " ".join(["Compare", *sides])
    if path == "/machines":
        return machines.layout(), "Machines"
    match parse(path, search):
        case OverviewAddress() as address:
            return overview.layout(results, address), address.machine or opening_machine(results)
        case CommitAddress() as address:
            return commit.layout(results, address), f"{address.commit[:8]} {address.machine}".strip()
        case SeriesAddress() as address:
            return series.layout(results, address), f"{address.suite} {address.variant} {address.case}"
        case FamilyAddress() as address:
            measured = address.machine in results.machines
            known = findings.of_machine(results, address.machine) if findings and measured else None
            return family.layout(results, address, known), f"{address.suite} on {address.machine}"
    return notice("There is no such page", html.P(back_link())), "Not found"


def _shell() -> Any:
    toggle = dmc.ColorSchemeToggle(
        id="scheme",
        lightIcon=html.Span("☀", className="icon"),
        darkIcon=html.Span("☾", className="icon"),
        size="lg",
        variant="subtle",
        color="gray",
    )
    pages = html.Nav([dcc.Link(name, href=link(path)) for name, path in _NAVIGATION.items()], className="pages")
    brand = dcc.Link([html.Span(className="brand-mark"), "Lockstep"], href=link("/"), className="brand")
    keys = html.Button("?", id="keys", type="button", title="Keys", **{"aria-label": "Keys"})  # type: ignore[arg-type]
    header = html.Header([html.Div([brand, pages]), html.Div([keys, toggle])])
    content = [
        dcc.Location(id="url", refresh="callback-nav"),
        dcc.Store(id="title"),
        dcc.Store(id="colours"),
        dcc.Store(id="visit"),
        dcc.Store(id="now", data=now_ms()),
        dcc.Store(id="version"),
        header,
        html.P(id="failed", className="failure", role="alert", hidden=True),
        html.Div(waiting(), id="page"),
        _help(),
    ]
    return dmc.MantineProvider(content, theme=MANTINE, defaultColorScheme="auto")


def _help() -> Any:
    keys = {
        "/": "filter",
        "j  k": "next and previous row",
        "Enter": "open the row",
        "a": "on the page of an alert: acknowledge it",
        "?": "these keys",
        "Esc": "close",
    }
    listed = [part for key, description in keys.items() for part in (html.Dt(html.Kbd(key)), html.Dd(description))]
    return html.Dialog([html.H2("Keys"), html.Dl(listed)], id="help")
