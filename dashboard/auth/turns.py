"""Answer the requests of one client to the API one at a time, so that one client cannot keep all threads busy."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from flask import Flask, Response, g, jsonify, request

#: Maximum number of requests of one client that a worker holds: one is being answered, and the others wait.
MOST_WAITING = 4


def add_turns(server: Flask, client: Callable[[], str]) -> None:
    """Answer one request of each client to ``/api/`` at a time. Answer 429 if too many wait.

    ``client``: returns the address of the current request's client.
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
