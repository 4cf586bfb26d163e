"""Check every request and set the headers of every answer: form, rates, turns, identity, and protection of writes.

The types of a callback's parameters are what is checked, so a callback names each parameter with its type.
"""

from __future__ import annotations

import inspect
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, get_type_hints

from dash import Dash
from flask import Flask, Response, abort, g, jsonify, request
from flask_limiter import Limiter
from flask_wtf.csrf import CSRFProtect, generate_csrf, validate_csrf
from limits import parse
from limits.storage import MemoryStorage
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from werkzeug.exceptions import BadRequest, TooManyRequests
from wtforms.validators import ValidationError as TokenError

from dashboard.auth.credentials import Access
from dashboard.auth.request_ids import add_request_ids
from dashboard.auth.sign_in import Sessions, add_sign_in, over_https

#: Path to which Dash's renderer sends the values of a page.
PATH = "/_dash-update-component"


class _Value(BaseModel):
    """A property of a component, and its value."""

    id: Any
    property: str
    value: Any = None


class _Body(BaseModel):
    """What Dash's renderer sends to a callback."""

    output: str
    outputs: dict[str, Any] | list[Any] = []
    inputs: list[_Value] = []
    state: list[_Value] = []
    changedPropIds: list[str] = []  # noqa: N815  # Dash's name


def add_checks(app: Dash) -> None:
    """Answer 400 to a callback request that does not match the form and types of any of the app's callbacks."""

    def check() -> None:
        if request.path == PATH and request.method == "POST" and not _fits(app, request.get_data()):
            raise BadRequest("No page of this server sends such a request: load the page again.")

    app.server.before_request(check)


def _fits(app: Dash, text: bytes) -> bool:
    try:
        # Pydantic's parser refuses texts that cannot be encoded (lone surrogates), and deep nesting.
        body = _Body.model_validate_json(text, strict=True)
        parts = body.inputs + body.state
        # Dash fills this map at the first page. Until then no request is refused as unknown.
        known = getattr(app, "callback_map", {})
        if body.output not in known:
            return not known
        callback = known[body.output]
        declared = [(one["id"], one["property"]) for one in (*callback["inputs"], *callback["state"])]
        if [(part.id, part.property) for part in parts] != declared or _has_large_number([p.value for p in parts]):
            return False
        _kinds(inspect.unwrap(callback["callback"]), len(parts)).validate_python(tuple(part.value for part in parts))
    except ValidationError:
        return False
    return True


@cache
def _kinds(function: Any, count: int) -> TypeAdapter[Any]:
    """Return the types of the first ``count`` arguments of a callback, of which the last may be ``*args``."""
    hints = get_type_hints(function)
    names = [*inspect.signature(function).parameters]
    kinds = tuple(hints.get(name, Any) for name in (names + names[-1:] * count)[:count])
    return TypeAdapter(tuple[kinds], config=ConfigDict(strict=True))  # type: ignore[valid-type]


def _has_large_number(value: Any) -> bool:
    """Return whether a JSON value holds an integer that databases and NumPy cannot store."""
    if isinstance(value, dict | list):
        return any(map(_has_large_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= 1 << 63


#: Maximum number of requests of one client that a worker holds: one is being answered, and the others wait.
MOST_WAITING = 4


def add_turns(server: Flask, client: Callable[[], str]) -> None:
    """Answer one request of each client to ``/api/`` at a time. Answer 429 if too many wait.

    Args:
        client: returns the address of the current request's client.
    """
    changed = threading.Condition()
    held: Counter[str] = Counter()
    answered: set[str] = set()

    @server.before_request
    def begin() -> tuple[Response, int, dict[str, str]] | None:
        if not request.path.startswith("/api/"):
            return None
        name = client()
        with changed:
            if held[name] >= MOST_WAITING:
                text = f"{MOST_WAITING} other requests of this client are not answered yet: wait for their answers."
                return jsonify({"error": text}), 429, {"Retry-After": "1"}
            held[name] += 1
            changed.wait_for(lambda: name not in answered)
            answered.add(name)
        g.turn = name
        return None

    @server.teardown_request
    def end(_: BaseException | None) -> None:
        name = g.pop("turn", None)
        if name is not None:
            with changed:
                answered.remove(name)
                held.subtract([name])
                if not held[name]:
                    del held[name]
                changed.notify_all()


#: Maximum rate of one person or address at one worker. A page loads about forty files.
RATES = {"any": "6000 per minute", "api": "600 per minute", "write": "60 per minute"}

#: Maximum bytes of a request's body.
MOST_BODY = 1 << 20

#: Dash's renderer returns this cookie's value in the header X-CSRFToken.
CSRF_COOKIE = "_csrf_token"

_WRITES = parse(RATES["write"])


class WriteError(ValueError):
    """The request may not change an alert. The message is for the person who sent the request."""


class RequestSecurity:
    """Checks every request to an app's server: its host name, its rate, its sender, and whether it may write.

    Args:
        access: how people are identified.
    """

    def __init__(self, app: Dash, access: Access) -> None:
        self._app = app
        self._access = access
        self._hosts = [name.lower() for name in access.hosts]
        self._policy = ""
        server: Flask = app.server
        server.config |= {
            # Sessions end with the process: a session holds a name and a CSRF token, and signing in again is cheap.
            "SECRET_KEY": secrets.token_bytes(32),
            "SESSION_COOKIE_NAME": "lockstep",
            "SESSION_COOKIE_HTTPONLY": True,
            "SESSION_COOKIE_SAMESITE": "Strict",
            "PERMANENT_SESSION_LIFETIME": timedelta(days=7),
            # A page sends many requests at once. An answer with the old session would undo another answer's change.
            "SESSION_REFRESH_EACH_REQUEST": False,
            # Reading needs no CSRF token; ``writer`` checks requests that write.
            "WTF_CSRF_CHECK_DEFAULT": False,
            "WTF_CSRF_SSL_STRICT": False,
            "WTF_CSRF_TIME_LIMIT": None,
            "MAX_CONTENT_LENGTH": MOST_BODY,
        }
        add_request_ids(server, access)
        if access.hosts:
            server.before_request(self._expect_host)
        [counts] = RequestCounts.STORAGE_SCHEME
        self.limiter = Limiter(self._requester, app=server, default_limits=[RATES["any"]], storage_uri=f"{counts}://")
        server.register_error_handler(TooManyRequests, self._too_often)
        add_turns(server, self._address)
        add_checks(app)
        self._csrf = CSRFProtect(server)
        server.after_request(self._headers)
        self._sessions = Sessions(access) if access.tokens else None
        if self._sessions:
            server.session_interface = self._sessions
            add_sign_in(server, access, self._sessions, self.limiter, self._csrf, self._address)

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
        return g.person or (self._sessions.person if self._sessions else "")

    @property
    def sign_in_hint(self) -> str:
        """What a person who is not identified must do to be allowed to write, as part of a sentence."""
        if self._access.tokens:
            return "sign in"
        if self._access.secret:
            return "use the authenticating proxy"
        if self._access.alone:
            return "use the account that runs this server, or start it with --tokens: see docs/operating.md"
        return "start this server with --tokens or --proxy-secret: see docs/operating.md"

    @property
    def can_sign_in(self) -> bool:
        """Whether there is a sign-in page."""
        return bool(self._access.tokens)

    def writer(self) -> str:
        """Return the name of the person who writes with this request.

        Raises:
            WriteError: the person is unknown, the request is not from one of our pages, or the rate is exceeded.
        """
        who = self.who
        if not who:
            raise WriteError(f"Only people who are signed in can change alerts; {self.sign_in_hint}.")
        try:
            validate_csrf(request.headers.get("X-CSRFToken"))
        except TokenError as error:
            raise WriteError("This page is too old to change alerts: load it again.") from error
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
        if self._access.writable and request.path == "/_dash-layout":
            secure = over_https(self._access)
            response.set_cookie(CSRF_COOKIE, generate_csrf(), samesite="Strict", secure=secure)
        return response


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
