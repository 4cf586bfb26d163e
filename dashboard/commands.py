"""The dashboard's verb: ``lockstep dashboard``."""

from __future__ import annotations

import argparse
import errno
import os
import socket
from pathlib import Path
from typing import Any

from asv.commands import Command
from asv.config import Config
from asv.util import UserError

_CONFIGS = ("asv.conf.json", "asv.conf.jsonc")


class Dashboard(Command):  # type: ignore[misc]  # asv has no types
    """Serve the results folder as pages."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add ``dashboard`` to the command line."""
        parser: argparse.ArgumentParser = subparsers.add_parser(
            "dashboard", help="Show the results in a browser", description="Serve the results as pages."
        )
        parser.add_argument(
            "--results", type=Path, help="results folder (default: results_dir of asv.conf.json, or ./results)"
        )
        parser.add_argument(
            "--repo",
            type=Path,
            help="git repository that tells commits' order and subjects (default: around the results)",
        )
        parser.add_argument("--host", default="127.0.0.1", help="address to serve at (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8050, help="port; 0 takes a free one (default: %(default)s)")
        parser.set_defaults(func=cls.run_from_args)
        return parser

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Serve; an asv.conf.json is used where there is one and not needed where there is none."""
        there = args.config or any(Path(name).exists() for name in _CONFIGS)
        return cls.run_from_conf_args(Config.load(args.config) if there else None, args)

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Serve until interrupted.

        Raises:
            UserError: the address cannot be served at.
        """
        results = args.results or Path(conf.results_dir if conf else "results")
        listener = listen(args.host, args.port)
        # Only now: a busy port must be told at once, and these imports take a second.
        from dashboard.app import create_app
        from dashboard.server import serve
        from dashboard.tree import Tree

        app = create_app(Tree(results, args.repo))
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"Lockstep shows {results} at http://{shown}:{port}/ (Ctrl+C ends it)", flush=True)
        serve(app, listener)
        return 0


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        UserError: it is taken or not ours; the message says what to do.
    """
    if not 0 <= port < 2**16:
        raise UserError(f"--port {port}: a port is a number from 0 to 65535")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port} of {host} is taken, perhaps by another dashboard: end that, or choose another with --port"
            ) from error
        raise UserError(f"cannot serve at {host} port {port}: {os.strerror(error.errno or 0)}") from error
