"""Serve below a path of a host, behind a proxy that removes this path from requests or leaves it there."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def below(application: WSGIApplication, root: str) -> WSGIApplication:
    """Return ``application`` as a part of a site, whose pages are all below the path ``root``."""

    def serve(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        environ["SCRIPT_NAME"] = root
        if path == root or path.startswith(f"{root}/"):
            environ["PATH_INFO"] = path.removeprefix(root) or "/"
        return application(environ, start)

    return serve if root else application


def root_of(text: str) -> str:
    """Parse the value of ``--prefix``: a path such as ``/lockstep/``. Return it without "/" at its end.

    Raises:
        argparse.ArgumentTypeError: the text is not such a path.
    """
    root = text.rstrip("/")
    if not re.fullmatch(r"(/[\w.~-]*\w)*", root, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not the path of a site; write a path such as /lockstep/")
    return root


def add_prefix(parser: argparse.ArgumentParser) -> None:
    """Add the option that says below which path browsers reach the server."""
    text = "path below which browsers reach the dashboard, such as /lockstep/ (default: a host of its own)"
    parser.add_argument("--prefix", type=root_of, default="", metavar="PATH", help=text)
