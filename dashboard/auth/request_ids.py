"""Give each request an id and state it in the answer and in the log, so that the log explains a failed request."""

from __future__ import annotations

import logging
import re
import secrets
import sys
import time
from datetime import datetime

from flask import Flask, Response, g, has_request_context, jsonify, request
from werkzeug.exceptions import InternalServerError

from dashboard.auth.credentials import Access

HEADER = "X-Request-Id"

_ID = re.compile(r"[\w.+/=-]{1,64}", re.ASCII)


def add_request_ids(server: Flask, access: Access) -> None:
    """Give each request an id, and log errors with the id to standard error.

    ``access``: a request from one of its trusted proxies keeps the id that the proxy sent and logged.
    """
    logger = server.logger
    logger.handlers[:] = [_handler()]
    # asv's handler at the root logger prints no traceback.
    logger.propagate = False

    @server.before_request
    def begin() -> None:
        requested_id = request.headers.get(HEADER, "") if access.is_proxy(request.remote_addr) else ""
        g.began = time.monotonic()
        g.request_id = requested_id if _ID.fullmatch(requested_id) else secrets.token_hex(8)

    @server.after_request
    def name(response: Response) -> Response:
        response.headers[HEADER] = _current()
        return response

    @server.errorhandler(InternalServerError)
    def failed(error: InternalServerError) -> tuple[Response, int]:
        text = f"The server failed. Its log has the reason, under the id {_current()}."
        if request.path.startswith("/api/"):
            return jsonify({"error": text, "request_id": _current()}), 500
        return Response(text, mimetype="text/plain"), 500


def add_access_log(server: Flask, file: str) -> None:
    """Write a line a request: time, id, address, forwarded addresses, request, status, bytes, seconds.

    ``file``: path of the file, or "-" for standard output.
    """
    handler = logging.StreamHandler(sys.stdout) if file == "-" else logging.FileHandler(file)
    logger = logging.getLogger("lockstep.access")
    logger.handlers[:], logger.propagate = [handler], False
    logger.setLevel(logging.INFO)

    @server.after_request
    def write(response: Response) -> Response:
        at = datetime.now().astimezone().strftime("[%d/%b/%Y:%H:%M:%S %z]")
        sent = f"{request.method} {request.environ.get('REQUEST_URI', '')} {request.environ['SERVER_PROTOCOL']}"
        forwarded = request.headers.get("X-Forwarded-For", "-")
        took = time.monotonic() - g.get("began", time.monotonic())
        logger.info(
            f'{at} {_current()} {request.remote_addr} ({forwarded}) "{sent}" {response.status_code} '
            f"{response.calculate_content_length() or 0} {took:.6f}"
        )
        return response


def _current() -> str:
    return str(g.get("request_id", "-")) if has_request_context() else "-"


def _handler() -> logging.Handler:
    def add(record: logging.LogRecord) -> bool:
        record.request_id = _current()
        return True

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s request %(request_id)s: %(message)s"))
    handler.addFilter(add)
    return handler
