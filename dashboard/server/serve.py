"""Serve with waitress: few processes with many threads, because each process loads its own copy of the results.

The main thread of waitress collects whole requests and sends buffered answers, so no thread waits for a slow client.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from typing import Any

import waitress
from dash import Dash
from waitress import wasyncore

from dashboard.auth.request_checks import MOST_BODY
from lockstep.processes.end_with_parent import end_with_parent

#: Seconds for which a connection may be idle. Common proxies reuse their connections for 60 s (nginx, AWS ALB) or 75 s.
#: If the server closes first, the proxy's next request is answered by a reset.
KEEP_ALIVE_S = 90

#: Seconds in which a worker that ends sends the answers to the requests that it has.
_GRACE_S = 10.0

#: Maximum bytes of headers, more than ordinary clients send.
_MOST_HEADERS = 1 << 16

#: Maximum connections of a worker, if the system allows so many open files, and files that it opens otherwise.
_MOST_CONNECTIONS, _OTHER_FILES = 1 << 16, 256

#: glibc's numbers of these settings, from <malloc.h>.
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3

_SETTINGS: dict[str, Any] = {
    "threads": 8,
    "channel_timeout": KEEP_ALIVE_S,
    "cleanup_interval": 5,
    "max_request_header_size": _MOST_HEADERS,
    "max_request_body_size": MOST_BODY,
    "asyncore_use_poll": True,
    # ``Access`` decides which of these headers are trusted.
    "clear_untrusted_proxy_headers": False,
    "ident": None,
}


def serve(app: Dash, listener: socket.socket, workers: int) -> None:
    """Serve ``app`` until SIGTERM or SIGINT. Start a worker anew if it ends.

    Args:
        listener: a listening socket, which is closed at the end.
        workers: number of processes.
    """
    warm(app)
    collect_seldom()
    share_arenas()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    running: list[ForkProcess] = []
    try:
        while True:
            running = [worker for worker in running if worker.is_alive()]
            running += [_start(app, listener) for _ in range(workers - len(running))]
            wait([worker.sentinel for worker in running])
            print("lockstep: a process of the server ended unexpectedly, and starts again", file=sys.stderr, flush=True)
            time.sleep(1)
    except SystemExit:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        listener.close()
        for worker in running:
            worker.terminate()
        until = time.monotonic() + _GRACE_S + 2
        for worker in running:
            worker.join(max(0.0, until - time.monotonic()))
            worker.kill()


def _end(*_: Any) -> None:
    raise SystemExit


def _start(app: Dash, listener: socket.socket) -> ForkProcess:
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(app, listener, os.getpid()))
    # A signal that came before the worker is listed would leave the worker running.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return worker


def _work(app: Dash, listener: socket.socket, parent: int) -> None:
    """Answer requests until SIGTERM or SIGINT, and then those that have come."""
    ending: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: ending.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    end_with_parent(parent)
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        most = min(hard, _MOST_CONNECTIONS) if hard != resource.RLIM_INFINITY else _MOST_CONNECTIONS
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    sockets: dict[int, Any] = {}
    server = waitress.create_server(
        app.server, map=sockets, sockets=[listener], connection_limit=most - _OTHER_FILES, **_SETTINGS
    )
    while not ending:
        wasyncore.loop(timeout=0.5, use_poll=True, map=sockets, count=1)
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until and select.select([server.socket], [], [], 0)[0]:
        wasyncore.loop(timeout=0, use_poll=True, map=sockets, count=1)
    server.del_channel()
    server.socket.close()
    while time.monotonic() < until and any(
        channel.requests or channel.total_outbufs_len for channel in server.active_channels.values()
    ):
        wasyncore.loop(timeout=0.05, use_poll=True, map=sockets, count=1)
    # Without Python's usual clean-up: on a busy host, freeing the loaded results takes longer than anybody waits.
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
