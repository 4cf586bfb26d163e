"""A gunicorn worker in which no thread waits for a client.

gunicorn 27's threaded worker gives a connection to a thread when the connection's first byte arrives. The thread reads
the rest without a time limit, so sixteen half-open requests stop a server of sixteen threads. Here the main loop, which
also holds idle connections, collects a whole request before handing it to a thread. Slow requests are cut off. One
client gets only some of the connections and threads. Clients behind a proxy differ by the address that the proxy
forwards.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import selectors
import socket
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Any, ClassVar

from gunicorn.workers.gthread import TConn, ThreadWorker

from dashboard.auth.credentials import Access
from dashboard.auth.security import MOST_BODY

#: Seconds for which a connection may be idle. Common proxies reuse their connections for 60 s (nginx, AWS ALB) or 75 s.
#: If the server closes first, the proxy's next request is answered by a reset.
KEEP_ALIVE_S = 90

#: Seconds from the first byte of a request to the end of its headers, and from there to the end of its body.
HEADERS_S, BODY_S = 5.0, 10.0

#: Maximum seconds that one write of an answer may wait for a slow client.
WRITE_S = 60.0

#: Maximum connections of one address to one worker. Trusted proxies have no limit.
MOST_CONNECTIONS = 64

#: Maximum requests of one client in threads at once. Answers of the API are large, so programs wait for each other.
MOST_REQUESTS = {"page": 4, "api": 1}

#: Maximum bytes of headers, more than ordinary clients send.
_MOST_HEADERS = 1 << 16

#: Maximum number of reads from a client while its connection closes.
_MOST_DRAINED = 16

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([^\r\n]*?)[ \t]*\r\n", re.IGNORECASE)
_FORWARDED = re.compile(rb"\r\nx-forwarded-for:([^\r\n]*)", re.IGNORECASE)
_PATH = re.compile(rb"[A-Z]+ (?:https?://[^/ ]*)?(/[^ ?]*)")
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:[ \t]*100-continue[ \t]*(?=\r\n)", re.IGNORECASE)

_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class _Socket(socket.socket):
    """A client's socket on which one read or write blocks a thread for ``WRITE_S`` at most."""

    def setblocking(self, flag: bool) -> None:
        """Set a time limit of ``WRITE_S`` where gunicorn asks to block without one."""
        self.settimeout(WRITE_S if flag else 0.0)


class _Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """A connection, the received part of its next request, and the deadline of the rest (by ``time.monotonic``)."""

    def __init__(self, worker: Worker, client: socket.socket, address: Any, server: Any) -> None:
        # From here on the old object does not own the file descriptor.
        super().__init__(worker.cfg, _Socket(fileno=client.detach()), address, server)
        self.host = worker.limited(address)
        self.address = str(address[0]) if isinstance(address, tuple) else ""
        self.queue = ("", "")
        self.received = bytearray()
        self.due = 0.0
        self.has_headers = False
        self._closed = worker.forget

    def close(self, graceful: bool = False) -> None:
        """Close the connection without waiting. gunicorn's graceful way blocks the main loop for up to 2 s."""
        self._closed(self)
        with contextlib.suppress(OSError):
            self.sock.settimeout(0.0)
            if graceful:
                self.sock.shutdown(socket.SHUT_WR)
                # Unread data would turn the close into a reset, which can destroy the answer.
                for _ in range(_MOST_DRAINED):
                    if not socket.socket.recv(self.sock, 1 << 16):
                        break
        with contextlib.suppress(OSError):
            self.sock.close()

    def refuse(self, status: int) -> None:
        """Answer with an error status, if the answer can be sent without waiting, and close the connection."""
        head = (
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 10\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            self.sock.send(head.encode())
        self.close(graceful=True)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn worker whose main loop collects whole requests before a thread answers them.

    See ``worker_for`` for ``access``.
    """

    access: ClassVar[Access] = Access()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reading: set[_Connection] = set()
        self._connections: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._waiting: defaultdict[tuple[str, str], deque[_Connection]] = defaultdict(deque)

    def limited(self, address: Any) -> str:
        """Return the host under which connections of an address are counted; "" for a proxy, which has no limit."""
        host = str(address[0]) if isinstance(address, tuple) else ""
        return "" if self.access.is_proxy(host) else host

    def forget(self, connection: _Connection) -> None:
        """Subtract a connection that closes from the count of its host's connections."""
        self._connections -= Counter([connection.host])

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection, or answer 503 if its host has too many; wait in the main loop for the first request."""
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                raise
            return
        connection = _Connection(self, client, address, listener.getsockname())
        self._connections[connection.host] += 1
        if connection.host and self._connections[connection.host] > MOST_CONNECTIONS:
            connection.refuse(503)
            return
        self.nr_conns += 1
        self._expect(connection)

    def on_client_socket_readable(self, conn: _Connection, client: socket.socket) -> None:
        """Read the next request of a connection that was idle."""
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self._expect(conn)

    def finish_request(self, conn: _Connection, fs: Any) -> None:
        """After an answer, start a request of the same client that waited for a thread, and expect the next request."""
        self._requests -= Counter([conn.queue])
        waiting = self._waiting.get(conn.queue)
        if waiting:
            self._start(waiting.popleft())
        elif waiting is not None:
            del self._waiting[conn.queue]
        ahead = conn.parser.unreader.take_buffered() if conn.parser is not None else b""
        if ahead and not fs.cancelled() and not fs.exception() and fs.result():
            # Part of the next request has arrived. gunicorn would let a thread wait for the rest.
            self._expect(conn)
            self._take(conn, ahead)
            return
        super().finish_request(conn, fs)

    def murder_pending(self) -> None:
        """Answer 408 to requests that did not arrive in time, and close idle connections; called every second."""
        now = time.monotonic()
        for connection in [
            reading for reading in self._reading if now > reading.due or not (self.alive or reading.received)
        ]:
            if connection.received:
                self._refuse(connection, 408)
            else:
                self._drop(connection)

    def _expect(self, connection: _Connection) -> None:
        connection.sock.settimeout(0.0)
        connection.received.clear()
        connection.has_headers = False
        connection.due = time.monotonic() + KEEP_ALIVE_S
        self._reading.add(connection)
        read = functools.partial(self._read, connection)
        self.poller.register(connection.sock, selectors.EVENT_READ, read)

    def _release(self, connection: _Connection) -> None:
        self._reading.discard(connection)
        with contextlib.suppress(OSError, KeyError, ValueError):
            self.poller.unregister(connection.sock)

    def _read(self, connection: _Connection, _: Any) -> None:
        try:
            data = connection.sock.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._take(connection, data)
        else:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._release(connection)
        self.nr_conns -= 1
        connection.close()

    def _refuse(self, connection: _Connection, status: int) -> None:
        self._release(connection)
        self.nr_conns -= 1
        connection.refuse(status)

    def _take(self, connection: _Connection, data: bytes) -> None:
        """Add received bytes to a connection's request, and hand the request to a thread if it is complete."""
        if not connection.received:
            connection.due = time.monotonic() + HEADERS_S
        received = connection.received
        received += data
        end = received.find(_END)
        if end < 0:
            if len(received) > _MOST_HEADERS:
                self._refuse(connection, 431)
            return
        if not connection.has_headers:
            connection.has_headers = True
            connection.due = time.monotonic() + BODY_S
            if _EXPECT.search(received, 0, end + 2):
                with contextlib.suppress(OSError):
                    connection.sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")
                # gunicorn would send this header again.
                received[:] = _EXPECT.sub(b"", received, count=1)
                end = received.find(_END)
        length = _LENGTH.search(received, 0, end + 2)
        # The thread that parses the request waits for a body as long as a number of any form says.
        if length and not (length[1].isdigit() and len(length[1]) < 18):
            self._refuse(connection, 400)
            return
        size = int(length[1]) if length else 0
        if size > MOST_BODY or _CHUNKED.search(received, 0, end + 2):
            self._refuse(connection, 413 if size > MOST_BODY else 411)
            return
        if len(received) < end + len(_END) + size:
            return
        self._release(connection)
        connection.queue = self._queue(connection, bytes(received[: end + 2]))
        connection.init()
        connection.parser.unreader.unread(bytes(received))
        received.clear()
        connection.data_ready = True
        self.enqueue_req(connection)

    def _queue(self, connection: _Connection, head: bytes) -> tuple[str, str]:
        """Return client and kind of a request. Requests of one client and kind take turns."""
        path = _PATH.match(head)
        name = path[1] if path else b""
        # What watches the server must learn of its health however busy it is.
        if name.endswith(b"/healthz"):
            return "", "health"
        forwarded = b",".join(_FORWARDED.findall(head)).decode("latin-1")
        client = self.access.client(connection.address, {"X-Forwarded-For": forwarded})
        return client, "api" if b"/api/" in name else "page"

    def enqueue_req(self, conn: _Connection) -> None:
        """Give a request to a thread, or queue the request while its client occupies enough threads."""
        client, kind = conn.queue
        # A proxy that forwards no address sends many people's pages.
        many_people = kind == "page" and self.access.is_proxy(client)
        if kind in MOST_REQUESTS and not many_people and self._requests[conn.queue] >= MOST_REQUESTS[kind]:
            self._waiting[conn.queue].append(conn)
        else:
            self._start(conn)

    def _start(self, connection: _Connection) -> None:
        self._requests[connection.queue] += 1
        super().enqueue_req(connection)


def worker_for(access: Access) -> Callable[..., Worker]:
    """Return a class of workers that does not limit connections from the proxies of ``access``.

    A proxy sends the requests of many people from one address, and states each person's address in a header.
    """
    return type("Worker", (Worker,), {"access": access})
