"""What every request must pass and every answer carries: headers, rates, identity, and protection of writes."""

from __future__ import annotations

import secrets
from datetime import timedelta
from html import escape

from dash import Dash
from flask import Flask, Response, abort, redirect, request, session
from flask_limiter import Limiter
from flask_wtf.csrf import CSRFError, CSRFProtect, generate_csrf, validate_csrf
from limits import parse
from wtforms.validators import ValidationError

from dashboard.access import Access
from dashboard.request_counts import RequestCounts

#: Requests by one person or address to one worker. A page loads about forty files.
RATES = {"any": "6000 per minute", "api": "600 per minute", "write": "60 per minute", "sign in": "10 per minute"}

#: Bytes of a request's body.
MOST_BODY = 1 << 20

#: Dash's renderer sends this cookie's value back as the header X-CSRFToken.
CSRF_COOKIE = "_csrf_token"

_WRITES = parse(RATES["write"])

_SIGN_IN = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Sign in · Lockstep</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark }}
body {{ font: 14px/1.5 system-ui, sans-serif; max-width: 22rem; margin: 15vh auto; padding: 0 1rem }}
h1 {{ font-size: 1.1rem }} input, button {{ font: inherit; padding: .35rem .6rem }}
input {{ width: 100%; box-sizing: border-box; margin: .2rem 0 .8rem }}
</style></head><body><main><h1>Sign in</h1><form method="post"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input name="csrf_token" type="hidden" value="{csrf}"><button>Sign in</button></form><p role="alert">{said}</p></main>
</body></html>"""


class WriteError(ValueError):
    """This request may not write; the message is for the person who asked."""


class Guard:
    """Stands before an app's pages.

    Args:
        app: whose server it protects.
        access: how people are known.
    """

    def __init__(self, app: Dash, access: Access) -> None:
        self._app = app
        self._access = access
        self._hosts = [name.lower() for name in access.hosts]
        self._policy = ""
        server: Flask = app.server
        server.config |= {
            # Sessions end with the process: they hold a name and a CSRF token, and asking again is cheap.
            "SECRET_KEY": secrets.token_bytes(32),
            "SESSION_COOKIE_NAME": "lockstep",
            "SESSION_COOKIE_HTTPONLY": True,
            "SESSION_COOKIE_SAMESITE": "Strict",
            "SESSION_COOKIE_SECURE": bool(access.proxies),
            "PERMANENT_SESSION_LIFETIME": timedelta(days=7),
            # A page asks for many things at once: an answer with the session as it was would undo another's change.
            "SESSION_REFRESH_EACH_REQUEST": False,
            # Reading is no danger; ``writer`` checks what is.
            "WTF_CSRF_CHECK_DEFAULT": False,
            "WTF_CSRF_SSL_STRICT": False,
            "WTF_CSRF_TIME_LIMIT": None,
            "MAX_CONTENT_LENGTH": MOST_BODY,
        }
        if access.hosts:
            server.before_request(self._expect_host)
        [counts] = RequestCounts.STORAGE_SCHEME
        self.limiter = Limiter(self._asking, app=server, default_limits=[RATES["any"]], storage_uri=f"{counts}://")
        self._csrf = CSRFProtect(server)
        server.after_request(self._headers)
        if access.tokens:
            self._add_sign_in(server)

    def _expect_host(self) -> None:
        """Refuse a request for another host name. Flask's TRUSTED_HOSTS knows no IPv6 address (werkzeug 3.1)."""
        host = request.host.lower()
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        if not any(name == known or (known.startswith(".") and f".{name}".endswith(known)) for known in self._hosts):
            abort(400)

    @property
    def who(self) -> str:
        """Name of the person asking; "" for a stranger."""
        forwarded = self._access.forwarded(request.remote_addr, request.headers)  # type: ignore[arg-type]
        return forwarded or (str(session.get("who", "")) if self._access.tokens else "")

    @property
    def way_in(self) -> str:
        """What a stranger has to do to write, in words."""
        if self._access.tokens:
            return "sign in"
        if self._access.proxies:
            return "come by the authenticating proxy"
        return "start this server so that it knows people: see docs/dashboard.md"

    @property
    def can_sign_in(self) -> bool:
        """Whether there is a page to sign in at."""
        return bool(self._access.tokens)

    def writer(self) -> str:
        """The name of the person who writes by this request.

        Raises:
            WriteError: nobody that is known, not from a page of ours, or too often.
        """
        who = self.who
        if not who:
            raise WriteError(f"Only people who are known can do that; {self.way_in}.")
        try:
            validate_csrf(request.headers.get("X-CSRFToken"))
        except ValidationError as error:
            raise WriteError("This page is too old to act from: load it again.") from error
        if not self.limiter.limiter.hit(_WRITES, who):
            raise WriteError("That is too often: wait a minute.")
        return who

    def _asking(self) -> str:
        return self.who or request.remote_addr or "unknown"

    def _headers(self, response: Response) -> Response:
        if not self._policy:
            # Dash knows all of its inline scripts only once it has served.
            scripts = " ".join(["'self'", *self._app.csp_hashes()])
            self._policy = (
                f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
                "img-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
                "form-action 'self'; frame-ancestors 'none'"
            )
        response.headers.setdefault("Content-Security-Policy", self._policy)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        response.headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=()"
        if self._access.writable and request.path == "/_dash-layout":
            secure = bool(self._access.proxies)
            response.set_cookie(CSRF_COOKIE, generate_csrf(), samesite="Strict", secure=secure)
        return response

    def _add_sign_in(self, server: Flask) -> None:
        @server.route("/sign-in", methods=["GET", "POST"])
        @self.limiter.limit(RATES["sign in"], methods=["POST"])
        def sign_in() -> Response:
            said, status = "", 200
            if request.method == "POST":
                self._csrf.protect()
                name = self._access.holder(request.form.get("token", ""))
                if name:
                    session.clear()
                    session["who"] = name
                    session.permanent = True
                    return redirect("/alerts", 303)  # type: ignore[return-value]
                said, status = "That is nobody's token.", 403
            return Response(_SIGN_IN.format(csrf=escape(generate_csrf()), said=said), status)

        @server.errorhandler(CSRFError)
        def refused(error: CSRFError) -> Response:
            return Response("The page was too old to send from: go back and load it again.", 400, mimetype="text/plain")
