"""Serve with gunicorn: few workers with many threads, because each worker loads its own copy of the results."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import sys
from contextlib import suppress
from typing import Any

from dash import Dash
from gunicorn.app.base import BaseApplication

from dashboard.auth.credentials import Access
from dashboard.server.connections import KEEP_ALIVE_S, worker_for
from lockstep.processes.end_with_parent import end_with_parent

#: glibc's numbers of these settings, from <malloc.h>.
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3

_SETTINGS: dict[str, Any] = {
    "threads": 8,
    "preload_app": True,
    "control_socket_disable": True,
    "loglevel": "warning",
    "timeout": 120,
    "graceful_timeout": 3,
    "keepalive": KEEP_ALIVE_S,
    # Time, id, the connection's address and what a proxy forwarded, request, status, bytes, seconds.
    "access_log_format": '%(t)s %({x-request-id}o)s %(h)s (%({x-forwarded-for}i)s) "%(r)s" %(s)s %(B)s %(L)s',
}


class _Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    def __init__(self, app: Dash, listener: socket.socket, workers: int, access: Access, log: str | None) -> None:
        self._app = app
        self._log = log
        self._access = access
        self._descriptor = listener.detach()  # gunicorn closes the descriptor
        self._workers = workers
        super().__init__()

    def load_config(self) -> None:
        for name, value in _SETTINGS.items():
            self.cfg.set(name, value)
        self.cfg.set("worker_class", worker_for(self._access))
        self.cfg.set("workers", self._workers)
        self.cfg.set("accesslog", self._log)
        # gunicorn's workers look once a second whether their parent has ended, but not while a thread holds the GIL.
        self.cfg.set("post_fork", lambda server, worker: end_with_parent(server.pid))
        self.cfg.set("worker_exit", lambda server, worker: end_at_once(worker))
        self.cfg.set("bind", f"fd://{self._descriptor}")

    def load(self) -> Any:
        return self._app.server


def serve(app: Dash, listener: socket.socket, workers: int, access: Access, log: str | None = None) -> None:
    """Serve ``app`` until interrupted.

    Args:
        listener: a listening socket; gunicorn takes it over and closes it.
        workers: number of processes.
        access: states the proxies, whose connections are not limited because they carry many people's requests.
        log: file that gets one line a request, "-" for standard output; ``None`` for none.
    """
    warm(app)
    collect_seldom()
    share_arenas()
    _Server(app, listener, workers, access, log).run()


def end_at_once(worker: Any) -> None:
    """End the process of a worker that has served, without Python's usual clean-up.

    On a busy host, freeing the loaded results takes longer than gunicorn waits. gunicorn would then kill the worker and
    report that memory may be short. A worker that failed at its start is left to gunicorn, which then stops the server.
    """
    if worker.booted:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def collect_seldom() -> None:
    """Let Python collect cyclic garbage less often than by default.

    A request makes ten thousand objects and drops them. By default Python would search the loaded results for garbage
    again and again, a tenth of a second each time.
    """
    gc.set_threshold(50_000, 20, 50)


def share_arenas() -> None:
    """Let all threads allocate memory from one arena of the C library.

    glibc gives each thread a separate arena, up to eight per core, and memory in one arena cannot serve another. A
    worker with eight threads used twice the memory of one thread that answers the same requests.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 1)
        # Otherwise glibc takes ever larger blocks from that arena, and returns nothing below the last block in use.
        library.mallopt(_M_MMAP_THRESHOLD, 1 << 18)


def warm(app: Dash) -> None:
    """Run Dash's setup for the first request before threads start: requests during the setup would get status 500."""
    app.server.test_client().get("/_dash-dependencies")
