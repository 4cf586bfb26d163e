"""``lockstep dashboard``: serve the results as pages."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import re
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from asv.commands import Command
from asv.util import UserError

from dashboard.auth.credentials import NAME_PEOPLE, Access, AccessError, access_of, add_access
from lockstep.commands.alert_options import add_sources, add_state, check_thresholds, open_alerts, packages_of
from lockstep.commands.results_options import check_locations, open_store, repository, results_folder
from lockstep.commands.verb import Verb
from lockstep.processes.trouble import reason_of
from lockstep.record.mirror import Mirror

if TYPE_CHECKING:
    from lockstep.alerts.analysis.runner import AnalysisRunner


class Dashboard(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Show the results in a browser.

    Serve the results as pages.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        add_sources(parser)
        add_state(parser)
        add_access(parser)
        parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8050, help="port; 0 takes a free port (default: %(default)s)")
        text = "path below which browsers reach the dashboard, such as /lockstep/ (default: a host of its own)"
        parser.add_argument("--prefix", type=root_of, default="", metavar="PATH", help=text)
        parser.add_argument(
            "--access-log", metavar="FILE", help="write one line a request to this file, or to standard output: -"
        )
        parser.add_argument(
            "--workers", type=int, default=2, help="number of processes that answer requests (default: %(default)s)"
        )

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Serve until interrupted.

        Raise ``UserError`` if the address, the cache, the alert database or the thresholds cannot be used, or an option
        on who may sign in is wrong.
        """
        try:
            access = access_of(args)
        except AccessError as error:
            raise UserError(str(error)) from error
        if args.workers < 1:
            raise UserError(f"--workers {args.workers}: it must be at least 1")
        check_locations(args)
        thresholds = check_thresholds(args)
        # The port is opened before a second of imports, because a busy port must be reported at once.
        with listen(args.host, args.port) as listener:
            _serve(args, access, thresholds, listener)
        return 0


def _serve(args: argparse.Namespace, access: Access, thresholds: Path, listener: socket.socket) -> None:
    # Imported here: `lockstep --help` imports every verb and must start fast.
    from dashboard.auth.request_ids import add_access_log
    from dashboard.server.app import create_app
    from dashboard.server.serve import serve
    from lockstep.alerts.analysis.latest_findings import Findings
    from lockstep.alerts.database.connection import StateError
    from lockstep.alerts.pages_service import AlertService
    from lockstep.history.store import StoreError
    from lockstep.notify.receivers import SITE
    from lockstep.suite.thresholds import ThresholdsError, read_thresholds

    # The log records of this library would appear between our lines.
    logging.getLogger("flask-limiter").propagate = False
    # Requests that wait for a thread are usual: a page asks for forty files at once.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    try:
        store = open_store(args)
        alerts = open_alerts(args)
        read_thresholds(thresholds)
    except (StoreError, StateError, ThresholdsError) as error:
        raise UserError(str(error)) from error
    # A fork must not inherit a connection, so each worker opens its own.
    alerts.database.close()
    service = AlertService(alerts, os.environ.get(SITE, ""))
    runner = analysis_runner(args, store.cache, thresholds)
    findings = Findings(store.cache, repository(args), packages_of(args), thresholds, runner)
    app = create_app(store, service, access, findings, args.prefix)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    mirror = Mirror.at(results_folder(args))
    if mirror:
        threading.Thread(target=mirror.follow, args=(threading.Event(),), daemon=True).start()
    served = mirror.address if mirror else results_folder(args)
    print(f"Lockstep serves {served} at http://{shown}:{port}{args.prefix}/ (Ctrl+C ends it)", flush=True)
    if access.proxies and not access.writable:
        print(f"Nobody can change alerts, because --proxy states addresses alone; {NAME_PEOPLE}", flush=True)
    if args.access_log:
        try:
            add_access_log(app.server, args.access_log)
        except OSError as error:
            raise UserError(f"--access-log {args.access_log} cannot be written: {reason_of(error)}") from error
    serve(app, listener, args.workers)


def analysis_runner(args: argparse.Namespace, cache: Path, thresholds: Path) -> AnalysisRunner:
    """Return what analyses new results as the command line says, and stores their alerts.

    Args:
        cache: the store's cache folder, see ``Store.cache``.
    """
    # Imported here: `lockstep --help` imports every verb and must start fast.
    from lockstep.alerts.analysis.runner import AnalysisRunner
    from lockstep.alerts.database.location import default_state

    state = str(args.state or default_state(results_folder(args)))
    folders = {"--results": results_folder(args), "--repo": args.repo, "--cache": args.cache}
    folders |= {"--thresholds": args.thresholds, "--config": args.config}
    options = [part for name, value in folders.items() if value for part in (name, str(Path(value).absolute()))]
    return AnalysisRunner(options, state, cache / "analyst.lock", thresholds)


def root_of(text: str) -> str:
    """Parse the value of ``--prefix``: a path such as ``/lockstep/``. Return it without "/" at its end.

    ``argparse.ArgumentTypeError`` if the text is not such a path.
    """
    root = text.rstrip("/")
    if not re.fullmatch(r"(/[\w.~-]*\w)*", root, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not the path of a site; write a path such as /lockstep/")
    return root


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address.

    Raise ``UserError`` if the port is in use, or the host is not an address of this machine.
    """
    if not 0 <= port < 2**16:
        raise UserError(f"--port {port}: a port is a number from 0 to 65535")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port} of {host} is in use, perhaps by another dashboard: stop it, or choose another with --port"
            ) from error
        # os.strerror does not know the error numbers of failed name look-ups.
        raise UserError(f"cannot serve at {host} port {port}: {error.strerror}") from error
