"""Check who sends a request, how often, and whether it may write, and set the headers of every answer."""

from __future__ import annotations

import threading
import time
from urllib.parse import urlsplit

from dash import Dash
from flask import Flask, Response, abort, g, jsonify, request
from flask_limiter import Limiter
from limits import parse
from limits.storage import MemoryStorage
from werkzeug.exceptions import TooManyRequests

from dashboard.auth.callback_forms import add_checks
from dashboard.auth.credentials import Access
from dashboard.auth.request_ids import add_request_ids
from dashboard.auth.turns import add_turns

#: Maximum rate of one person or address at one worker. A page loads about forty files.
RATES = {"any": "6000 per minute", "api": "600 per minute", "write": "60 per minute"}

#: Maximum bytes of a request's body.
MOST_BODY = 1 << 20

_WRITES = parse(RATES["write"])


class WriteError(ValueError):
    """The request may not change an alert. The message is for the person who sent the request."""


class RequestSecurity:
    """Checks every request to an app's server: its host name, its rate, its sender, and whether it may write.

    ``access``: how people are identified.
    """

    def __init__(self, app: Dash, access: Access) -> None:
        self._app = app
        self._access = access
        self._hosts = [name.lower() for name in access.hosts]
        self._policy = ""
        server: Flask = app.server
        server.config["MAX_CONTENT_LENGTH"] = MOST_BODY
        add_request_ids(server, access)
        if access.hosts:
            server.before_request(self._expect_host)
        [counts] = RequestCounts.STORAGE_SCHEME
        self.limiter = Limiter(self._requester, app=server, default_limits=[RATES["any"]], storage_uri=f"{counts}://")
        server.register_error_handler(TooManyRequests, self._too_often)
        add_turns(server, self._address)
        add_checks(app)
        server.after_request(self._headers)

    def _expect_host(self) -> None:
        """Refuse a request whose host name is not accepted.

        Flask's TRUSTED_HOSTS does not do it, because it takes no IPv6 addresses (werkzeug 3.1).
        """
        host = request.host.lower()
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        if not any(name == known or (known.startswith(".") and f".{name}".endswith(known)) for known in self._hosts):
            abort(400)

    @property
    def who(self) -> str:
        """Name of the person who sends the current request; "" if the person is not identified."""
        if "person" not in g:
            access, address, headers = self._access, request.remote_addr, request.headers
            own = access.own(address, request.environ.get("REMOTE_PORT"), headers)  # type: ignore[arg-type]
            g.person = own or access.forwarded(address, headers)  # type: ignore[arg-type]
        return str(g.person)

    @property
    def sign_in_hint(self) -> str:
        """What a person who is not identified must do to be allowed to write, as part of a sentence."""
        if self._access.secret:
            return "use the authenticating proxy"
        if self._access.alone:
            return "use the account that runs this server, or start it with --proxy-secret: see docs/operating.md"
        return "start this server with --proxy-secret: see docs/operating.md"

    def writer(self) -> str:
        """Return the name of the person who writes with this request.

        Raise ``WriteError`` if the person is unknown, the request is not from one of our pages, or the rate is
        exceeded.
        """
        who = self.who
        if not who:
            raise WriteError(f"Only people who are signed in can change alerts; {self.sign_in_hint}.")
        if _is_foreign():
            raise WriteError("A page of another site cannot change alerts: open the alert's own page.")
        if not self.limiter.limiter.hit(_WRITES, who):
            raise WriteError("Too many requests: wait a minute.")
        return who

    def _requester(self) -> str:
        return self.who or self._address()

    def _address(self) -> str:
        return self._access.client(request.remote_addr, request.headers)  # type: ignore[arg-type]

    def _too_often(self, error: TooManyRequests) -> tuple[Response, int]:
        limit = self.limiter.current_limit
        wait = str(max(1, int(limit.reset_at - time.time()) + 1) if limit else 60)
        text = f"Too many requests: wait {wait} s."
        answer = jsonify({"error": text}) if request.path.startswith("/api/") else Response(text, mimetype="text/plain")
        answer.headers["Retry-After"] = wait
        return answer, 429

    def _headers(self, response: Response) -> Response:
        if not self._policy:
            # Dash knows all of its inline scripts only after its first answer.
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
        return response


def _is_foreign() -> bool:
    """Return whether a page of another site sent the current request. A program states no site and no origin.

    Browsers state the site over https and to loopback addresses, and else the origin. The rule is that of Go's
    ``http.CrossOriginProtection`` (https://go.dev/src/net/http/csrf.go).
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site not in ("same-origin", "none")
    return origin is not None and urlsplit(origin).netloc != request.host


class RequestCounts(MemoryStorage):
    """Counts requests for the rate limits, at the address ``one-by-one://``: a ``MemoryStorage`` with a lock.

    Without the lock, two threads at once could start the timer of ``MemoryStorage`` twice, which fails.
    """

    STORAGE_SCHEME = ["one-by-one"]  # noqa: RUF012  # as its parent declares it

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **options: str) -> None:
        self._one = threading.Lock()
        super().__init__(uri, wrap_exceptions, **options)

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add ``amount`` to the count of ``key``, which expires after ``expiry`` seconds; return the count."""
        with self._one:
            return super().incr(key, expiry, amount)
