"""Serving with gunicorn: one worker with threads, so that all requests share one reading of the results."""

from __future__ import annotations

import gc
import socket
from typing import Any

from dash import Dash
from gunicorn.app.base import BaseApplication

_SETTINGS: dict[str, Any] = {
    "worker_class": "gthread",
    "workers": 1,
    "threads": 8,
    "preload_app": True,
    "control_socket_disable": True,
    "loglevel": "warning",
    "timeout": 120,
    "graceful_timeout": 3,
}


class _Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    def __init__(self, app: Dash, listener: socket.socket) -> None:
        self._app = app
        self._listener = listener
        super().__init__()

    def load_config(self) -> None:
        for name, value in _SETTINGS.items():
            self.cfg.set(name, value)
        self.cfg.set("bind", f"fd://{self._listener.fileno()}")

    def load(self) -> Any:
        return self._app.server


def serve(app: Dash, listener: socket.socket) -> None:
    """Serve ``app`` on a listening socket until interrupted."""
    warm(app)
    # A look at a page makes ten thousand objects and drops them; by default Python then goes through all that the
    # results are made of again and again, a tenth of a second each time.
    gc.set_threshold(50_000, 20, 50)
    _Server(app, listener).run()


def warm(app: Dash) -> None:
    """Make Dash's first-request setup happen once, here: in threads it answers the first callbacks with 500."""
    app.server.test_client().get("/_dash-dependencies")
