"""One client that sends slowly, or opens many connections, stops nobody else; a real server on loopback is asked."""

import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from trees import MACHINE, record, write_measurement

from dashboard.auth.turns import MOST_WAITING
from dashboard.server.serve import KEEP_ALIVE_S

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow:"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def started(folder, workers, *more, cases=1):
    """Process and port of ``lockstep dashboard`` over one measurement, once it answers."""
    write_measurement(folder / "results", [record(case=f"M={rows}") for rows in range(1, cases + 1)])
    main = [sys.executable, "-c", "from lockstep.commands.cli import main; main()"]
    options = ["--results", "results", "--cache", "cache", "--state", "alerts.sqlite"]
    command = [*main, "dashboard", "--port", "0", "--workers", str(workers), *options, *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
    asked(port)
    return process, port


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Path of the server's access log."""
    return tmp_path_factory.mktemp("log") / "access.log"


@pytest.fixture(scope="module")
def server(tmp_path_factory, log):
    """Port of ``lockstep dashboard`` with one worker."""
    process, port = started(tmp_path_factory.mktemp("server"), 1, "--access-log", str(log))
    try:
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


def asked(port, path="/healthz", timeout=30):
    """Seconds until the answer, which must be a good one."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as answer:
        assert answer.status == 200
        answer.read()
    return time.monotonic() - began


@contextlib.contextmanager
def clients(port, number, sent):
    """Connections that have sent this much."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(number)]
        for one in opened:
            one.sendall(sent)
        yield opened


def is_open(port):
    """Return whether the port takes connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:  # the socket was closed while it took the connection
        return True
    return True


def received(connection):
    """All until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def one_answer(connection):
    """Status and content of one answer of a connection that stays open."""
    with connection.makefile("rb") as file:
        status = int(file.readline().split()[1])
        headers = dict(line.decode().strip().lower().split(": ", 1) for line in iter(file.readline, b"\r\n"))
        return status, file.read(int(headers["content-length"]))


@pytest.mark.parametrize(
    "sent",
    [
        HALF,
        b"",
        b"POST /_dash-update-component HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
        b"POST /_dash-update-component HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\nx",
        b"POST /_dash-update-component HTTP/1.1\r\nHost: localhost\r\nContent-Length: 000000000000000000100\r\n\r\nx",
        HEALTH + HALF,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
    ids=["half the headers", "nothing", "slow body", "slow large body", "padded length", "pipelined", "never closes"],
)
def test_others_are_answered_while_a_client_sends_slowly(server, sent):
    with clients(server, 64, sent):
        time.sleep(0.3)
        waited = [asked(server) for _ in range(10)]
    # The median: one answer may be late on a busy machine, all are where threads wait for slow clients.
    assert statistics.median(waited) < 2.5, waited


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Content-Length: 1048577", 413),
        ("Content-Length: 100000000000000000000", 413),
        ("Content-Length: +9", 400),
        ("Content-Length: 9, 9", 400),
        ("Content-Length : 9", 400),
    ],
)
def test_a_body_too_long_or_with_a_wrong_length_is_refused_at_once(server, header, status):
    with clients(server, 1, f"POST /nowhere HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode()) as [one]:
        assert re.match(rb"HTTP/1\.[01] %d " % status, received(one))


def test_a_body_in_chunks_is_refused_once_it_is_too_long(server):
    with clients(server, 1, b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n") as [
        one
    ]:
        with contextlib.suppress(OSError):
            for _ in range(40):
                one.sendall(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        assert re.match(rb"(HTTP/1\.[01] 413 |$)", received(one))
    assert asked(server) < 30


def test_a_client_that_expects_to_be_asked_for_its_body_is_asked_once(server):
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    with clients(server, 1, head) as [one]:
        assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(b"body")
        assert one_answer(one)[0] in (404, 405)


def test_a_request_may_come_in_pieces_and_several_at_once(server):
    with clients(server, 1, b"") as [slow]:
        for byte in HEALTH:
            slow.sendall(bytes([byte]))
            time.sleep(0.005)
        assert one_answer(slow)[0] == 200
        slow.sendall(HEALTH + HEALTH[:20])
        status, content = one_answer(slow)
        assert (status, json.loads(content)["machines"]) == (200, 1)
        time.sleep(0.3)
        slow.sendall(HEALTH[20:])
        assert one_answer(slow)[0] == 200


def test_a_body_that_comes_late_is_read_whole(server):
    body = b"token=" + b"x" * 300_000
    for size in (1_000, len(body)):
        head = f"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()
        with clients(server, 1, head) as [slow]:
            time.sleep(0.2)
            slow.sendall(body[:size])
            assert one_answer(slow)[0] in (404, 405)


def test_a_connection_that_a_proxy_keeps_is_still_there(server):
    assert KEEP_ALIVE_S > 75
    with clients(server, 1, b"") as [kept]:
        for pause in (0.0, 2.5, 3.5):
            time.sleep(pause)
            kept.sendall(HEALTH)
            assert one_answer(kept)[0] == 200


def test_more_headers_than_anybody_sends_are_refused(server):
    with clients(server, 1, b"GET / HTTP/1.1\r\n") as [much]:
        with contextlib.suppress(OSError):
            for _ in range(40):
                much.sendall(b"X: " + b"x" * 4000 + b"\r\n")
        # A client that still sends when the server closes may lose the answer.
        assert re.match(rb"(HTTP/1\.[01] 431 |$)", received(much))
    assert asked(server) < 30


def test_a_worker_ends_with_its_master(tmp_path):
    process, port = started(tmp_path, workers=2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # Its workers hold the other end.
    assert process.stdout.read() == ""
    process.stdout.close()
    # A process that ends closes its output before its listening socket; until then connections wait in a backlog.
    until = time.monotonic() + 20
    while is_open(port):
        assert time.monotonic() < until
        time.sleep(0.02)


#: A request whose answer, of 7,000 points, is larger than what a socket holds: its thread waits until somebody reads.
HEAVY = f"GET /api/v1/points/{MACHINE}/latest HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: %s\r\n\r\n"


def test_programs_of_one_client_wait_in_a_short_line_and_leave_threads_to_everybody_else(tmp_path):
    process, port = started(tmp_path, 1, "--proxy", "127.0.0.1", cases=3500)
    try:
        assert len(answer_to(port, HEAVY % "192.0.2.1")) > 5 << 20
        with clients(port, 24, (HEAVY % "192.0.2.7").encode()) as several:
            asked(port)
            for path in ("/healthz", "/metrics", "/", "/api/v1/machines"):
                for client in ("192.0.2.7", "192.0.2.8"):
                    if (path, client) != ("/api/v1/machines", "192.0.2.7"):
                        assert answer_to(port, HEALTH.decode().replace("/healthz", path), client), (path, client)
            statuses = [one_answer(one)[0] for one in several]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= MOST_WAITING
        assert one_answer_of(port, HEAVY % "192.0.2.7") == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


def one_answer_of(port, request):
    with clients(port, 1, request.encode()) as [one]:
        return one_answer(one)[0]


def test_requests_that_came_before_the_end_are_answered(tmp_path):
    process, port = started(tmp_path, 1, cases=100)
    with clients(port, 3, (HEAVY % "").encode()) as several:
        asked(port)  # the requests before this one have been read
        process.send_signal(signal.SIGTERM)
        answers = [one_answer(one) for one in several]
    assert process.wait(20) == 0
    process.stdout.close()
    assert [status for status, _ in answers] == [200] * 3
    assert {len(json.loads(content)) for _, content in answers} == {200}
    assert not is_open(port)


def test_a_process_of_the_server_that_is_killed_starts_again(tmp_path):
    process, port = started(tmp_path, 1)
    try:
        # Besides its fork, Python may have a helper process of multiprocessing.
        def command_line(pid):
            with contextlib.suppress(OSError):  # it has ended
                return Path(f"/proc/{pid}/cmdline").read_bytes()

        def workers():
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return [one for one in children if command_line(one) == command_line(process.pid)]

        [worker] = workers()
        os.kill(int(worker), signal.SIGKILL)
        until = time.monotonic() + 60
        while workers() in ([], [worker]):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert asked(port) < 30
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


def answer_to(port, request, client=""):
    """Return the content of the answer to a request that a proxy sends for a client."""
    forwarded = f"\r\nX-Forwarded-For: {client}\r\n\r\n" if client else "\r\n\r\n"
    with clients(port, 1, request.replace("\r\n\r\n", forwarded).encode()) as [one]:
        status, content = one_answer(one)
    assert status == 200
    return content


def test_the_access_log_has_a_line_a_request_with_the_id_of_its_answer(server, log):
    with urllib.request.urlopen(f"http://127.0.0.1:{server}/api/v1/machines?limit=5", timeout=30) as answer:
        number, size = answer.headers["X-Request-Id"], len(answer.read())
    until = time.monotonic() + 60
    # The line is written after the answer is sent.
    while not (lines := [line for line in log.read_text().splitlines() if number in line]):
        assert time.monotonic() < until
        time.sleep(0.02)
    [line] = lines
    assert f'{number} 127.0.0.1 (-) "GET /api/v1/machines?limit=5 HTTP/1.1" 200 {size} ' in line
