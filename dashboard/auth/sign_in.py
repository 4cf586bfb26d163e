"""Sign in with a token, and sign out: two small pages and their protection."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from html import escape

from flask import Flask, Response, redirect, request, session
from flask.sessions import SecureCookieSessionInterface
from flask_limiter import Limiter
from flask_wtf.csrf import CSRFError, CSRFProtect, generate_csrf
from limits import parse

from dashboard.address import link
from dashboard.auth.credentials import Access

#: Maximum failed attempts of one address. Tokens are too long to guess; the limit saves computation and log lines.
FAILURES = "10 per minute"

_FAILURES = parse(FAILURES)

_PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title} · Lockstep</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark }}
body {{ font: 14px/1.5 system-ui, sans-serif; max-width: 22rem; margin: 15vh auto; padding: 0 1rem }}
h1 {{ font-size: 1.1rem }} input, button {{ font: inherit; padding: .35rem .6rem }}
input {{ width: 100%; box-sizing: border-box; margin: .2rem 0 .8rem }}
</style></head><body><main><h1>{title}</h1><form method="post">{field}
<input name="csrf_token" type="hidden" value="{csrf}"><button>{title}</button></form><p role="alert">{said}</p></main>
</body></html>"""

_TOKEN = """<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>"""


class Sessions(SecureCookieSessionInterface):
    """Session cookies that are Secure if the browser uses https, and that end when their owner signs out.

    A cookie states the number of times that its owner had signed out when it was made. All processes of the server
    share these numbers, so that a copy of a cookie ends with it.

    Args:
        access: holds the tokens; with proxies, every request counts as https.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        names = sorted(set(access.tokens.values()))
        self._place = {name: place for place, name in enumerate(names)}
        # Processes that are forked later share an anonymous map.
        self._signed_out = memoryview(mmap.mmap(-1, 8 * len(names))).cast("Q")

    def begin(self, name: str) -> None:
        """Sign in the current request's sender as a holder of a token."""
        session.clear()
        session["who"], session["signed_out"] = name, self._signed_out[self._place[name]]
        session.permanent = True

    def end(self) -> None:
        """Sign out the current request's sender, in all of that person's browsers."""
        if self.person:
            self._signed_out[self._place[self.person]] += 1
        session.clear()

    @property
    def person(self) -> str:
        """Name of the current request's sender; "" if nobody is signed in."""
        name = str(session.get("who", ""))
        known = name in self._place and session.get("signed_out") == self._signed_out[self._place[name]]
        return name if known else ""

    def get_cookie_secure(self, app: Flask) -> bool:
        """Return whether the session cookie of the current request's answer is Secure."""
        return over_https(self._access)


def over_https(access: Access) -> bool:
    """Return whether the current request's browser uses https. A forged header harms only its sender."""
    forwarded = request.headers.get("X-Forwarded-Proto", "").lower()
    origin = request.headers.get("Origin", "").lower()
    return bool(access.proxies) or request.is_secure or "https" in forwarded or origin.startswith("https://")


def add_sign_in(
    server: Flask,
    access: Access,
    sessions: Sessions,
    limiter: Limiter,
    csrf: CSRFProtect,
    address: Callable[[], str],
) -> None:
    """Add the pages ``/sign-in`` and ``/sign-out`` to the server.

    Args:
        access: holds the tokens.
        sessions: begin and end here.
        limiter: counts failed attempts.
        csrf: checks that a form comes from one of these pages.
        address: returns the address of the client.
    """

    def page(title: str, message: str = "", status: int = 200) -> Response:
        field = _TOKEN if title == "Sign in" else ""
        return Response(
            _PAGE.format(title=title, field=field, csrf=escape(generate_csrf()), said=escape(message)), status
        )

    @server.route("/sign-in", methods=["GET", "POST"])
    def sign_in() -> Response:
        if request.method == "GET":
            return page("Sign in")
        csrf.protect()
        name = access.holder(request.form.get("token", ""))
        if name:
            # Even if other people failed at the same address.
            sessions.begin(name)
            return redirect(link("/alerts"), 303)  # type: ignore[return-value]
        if limiter.limiter.hit(_FAILURES, "sign in", address()):
            return page("Sign in", "This token is unknown.", 403)
        answer = page("Sign in", "Too many wrong tokens came from your address: wait a minute.", 429)
        again = limiter.limiter.get_window_stats(_FAILURES, "sign in", address()).reset_time
        answer.headers["Retry-After"] = str(max(1, int(again - time.time()) + 1))
        return answer

    @server.route("/sign-out", methods=["GET", "POST"])
    def sign_out() -> Response:
        if request.method == "GET":
            return page("Sign out", f"Signed in as {sessions.person}." if sessions.person else "Nobody is signed in.")
        csrf.protect()
        sessions.end()
        return redirect(link("/"), 303)  # type: ignore[return-value]

    @server.errorhandler(CSRFError)
    def refused(error: CSRFError) -> Response:
        return Response("This page is too old: go back and load it again.", 400, mimetype="text/plain")
