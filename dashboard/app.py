"""The Dash application: shell, routing, and what every answer's headers forbid."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from flask import Response

from dashboard.address import parse_commit, parse_family, parse_overview, parse_series
from dashboard.analyst import Analyst
from dashboard.pages import commit, family, overview, series
from dashboard.pages.parts import back_link, notice
from dashboard.results.store import Store
from dashboard.theme import MANTINE

_INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}<script src="{scheme}"></script></head>
    <body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


#: Milliseconds between two looks for new results, and for an analysis that a page waits for.
_TICK_MS, _SOON_MS = 15_000, 1_000


def create_app(store: Store, analyst: Analyst | None = None) -> Dash:
    """The dashboard of a results folder; ``.server`` is its WSGI application."""
    analyst = analyst or Analyst(store.root)
    app = Dash(
        __name__,
        title="Lockstep",
        update_title="",
        assets_ignore=r"before\.js",
        suppress_callback_exceptions=True,
        add_log_handler=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    # Sets the colour scheme before anything is drawn, or a dark page begins with a white flash.
    app.index_string = _INDEX.replace("{scheme}", app.get_asset_url("before.js"))
    app.layout = _shell()

    @app.callback(Output("page", "children"), Output("title", "data"), Input("url", "pathname"), State("url", "search"))
    def route(path: str | None, search: str | None) -> tuple[Any, str]:
        return page(store, path or "/", search or "")

    @app.callback(
        Output("version", "data"),
        Output("tick", "interval"),
        Input("tick", "n_intervals"),
        State("version", "data"),
        prevent_initial_call=True,
    )
    def renew(_: int | None, shown: str | None) -> tuple[Any, int]:
        results = store.current()
        version = analyst.version(results)
        return no_update if version == shown else version, _SOON_MS if analyst.busy(results) else _TICK_MS

    clientside: Any = app.clientside_callback
    clientside(ClientsideFunction("lockstep", "title"), Output("title", "modified_timestamp"), Input("title", "data"))
    clientside(
        ClientsideFunction("lockstep", "colours"),
        Output("colours", "data"),
        Input("scheme", "computedColorScheme"),
        State("colours", "data"),
    )
    clientside(ClientsideFunction("lockstep", "visit"), Output("visit", "data"), Input("visit", "id"))
    overview.register(app, store, analyst)
    family.register(app, store, analyst)
    series.register(app, store, analyst)
    commit.register(app, store, analyst)
    _forbid(app)
    return app


def page(store: Store, path: str, search: str) -> tuple[Any, str]:
    """The page of an address, and its title."""
    if path == "/":
        return overview.layout(store.current(), parse_overview(search)), "Lockstep"
    measured = parse_commit(path, search)
    if measured is not None:
        return commit.layout(store.current(), measured), f"{measured.commit[:8]} · Lockstep"
    one = parse_series(path, search)
    if one is not None:
        return series.layout(store.current(), one), f"{one.suite} {one.variant} · Lockstep"
    address = parse_family(path, search)
    if address is None:
        return notice("There is no such page", html.P(back_link())), "Not found · Lockstep"
    return family.layout(store.current(), address), f"{address.suite} · Lockstep"


def _shell() -> Any:
    toggle = dmc.ColorSchemeToggle(
        id="scheme",
        lightIcon=html.Span("☀", className="icon"),
        darkIcon=html.Span("☾", className="icon"),
        size="lg",
        variant="subtle",
        color="gray",
    )
    header = html.Header(
        [dcc.Link([html.Span(className="brand-mark"), "Lockstep"], href="/", className="brand"), toggle]
    )
    content = [
        dcc.Location(id="url", refresh="callback-nav"),
        dcc.Store(id="title"),
        dcc.Store(id="colours"),
        dcc.Store(id="visit"),
        dcc.Store(id="version"),
        dcc.Interval(id="tick", interval=_SOON_MS),
        header,
        html.Div(id="page"),
        _help(),
    ]
    return dmc.MantineProvider(content, theme=MANTINE, defaultColorScheme="auto")


def _help() -> Any:
    keys = {"/": "search", "j k": "down and up the table", "Enter": "open the row", "?": "this help"}
    lines = [part for key, what in keys.items() for part in (html.Dt(html.Kbd(key)), html.Dd(what))]
    return html.Dialog([html.H2("Keys"), html.Dl(lines)], id="help")


def _forbid(app: Dash) -> None:
    """Headers by which the browser loads nothing from elsewhere, and runs no script that is not ours."""
    policy: list[str] = []

    def headers(response: Response) -> Response:
        if not policy:
            # Dash knows all of its inline scripts only once it has served.
            scripts = " ".join(["'self'", *app.csp_hashes()])
            policy.append(
                f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
                "img-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
                "form-action 'none'; frame-ancestors 'none'"
            )
        response.headers["Content-Security-Policy"] = policy[0]
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    app.server.after_request(headers)
