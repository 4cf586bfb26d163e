"""Options that several verbs share, and functions that open the stores and run a verb with its exit status."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.alerts.database.location import STATE
from lockstep.commands.results_options import (
    add_location_options,
    check_locations,
    load_config,
    open_store,
    repository,
    results_folder,
)
from lockstep.processes.exit_status import UsageError
from lockstep.suite.selection import nearest

if TYPE_CHECKING:
    from lockstep.alerts.database.store import AlertStore
    from lockstep.alerts.model import AnalysisResult
    from lockstep.history.snapshot import Results


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the options for results, repository, cache and thresholds."""
    add_location_options(parser)
    parser.add_argument("--thresholds", type=Path, help="thresholds file (default: ./thresholds.toml, if it exists)")


def add_state(parser: argparse.ArgumentParser) -> None:
    """Add the option for the alert database."""
    parser.add_argument(
        "--state",
        metavar="FILE|URL",
        help=f"database of the alerts: a file or postgresql://… (default: ${STATE}, or in the user's data folder)",
    )


def alert_number(text: str) -> int:
    """Read an alert's or message's number from the command line.

    Raises:
        argparse.ArgumentTypeError: the text is not a number, or the number is larger than the database can store.
    """
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:20]) < 2**63:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the number of an alert; `lockstep alerts list --all` shows the numbers"
        )
    return int(text)


def add_names(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--machine`` and ``--family``; ``expect_names`` checks their values."""
    parser.add_argument("--machine", help="only results of this machine")
    parser.add_argument("--family", help="only results of this family")


def expect_names(args: argparse.Namespace, known: Iterable[tuple[str, str, str]]) -> None:
    """Check that ``--machine`` and ``--family`` name an existing machine and family.

    Args:
        known: (machine, family, suite) of everything that exists.

    Raises:
        UsageError: a name does not exist; the message lists the existing names.
    """
    known_names = list(dict.fromkeys(known))
    machines = list(dict.fromkeys(machine for machine, _, _ in known_names))
    if args.machine and args.machine not in machines:
        raise UsageError(f"--machine {args.machine}: this machine has no results{nearest(args.machine, machines)}")
    machine_names = [names for machine, *names in known_names if args.machine in (None, machine)]
    families = list(dict.fromkeys(name for names in machine_names for name in names if name))
    if args.family and args.family not in families:
        machine_note = f" on {args.machine}" if args.machine else ""
        raise UsageError(
            f"--family {args.family}: this family has no results{machine_note}{nearest(args.family, families)}"
        )


def names_of(results: Results) -> Iterator[tuple[str, str, str]]:
    """Yield (machine, family, suite) of everything that was measured."""
    for series in results.series():
        benchmark = results.benchmarks[series.benchmark]
        yield series.machine, benchmark.family, benchmark.suite


def check_thresholds(args: argparse.Namespace) -> Path:
    """Return the path of the thresholds file; the file may be missing unless ``--thresholds`` names it.

    Raises:
        ThresholdsError: ``--thresholds`` names a file that does not exist.
    """
    from lockstep.suite.thresholds import FILE, ThresholdsError

    if args.thresholds and not args.thresholds.is_file():
        raise ThresholdsError(f"--thresholds {args.thresholds}: there is no such file")
    return Path(args.thresholds or FILE)


def run_analysis(args: argparse.Namespace) -> tuple[Results, AnalysisResult]:
    """Find the changes in the results, and store the findings, which the dashboard's pages show."""
    from lockstep.alerts.analysis.analyse import analyse_store
    from lockstep.suite.thresholds import read_thresholds

    check_locations(args)
    thresholds = read_thresholds(check_thresholds(args))
    return analyse_store(open_store(args), thresholds, repository(args), packages_of(args))


def packages_of(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the folders of the packages under test from asv's configuration."""
    conf = load_config(args)
    return tuple(getattr(conf, "lockstep", {}).get("packages", ())) if conf else ()


def open_alerts(args: argparse.Namespace) -> AlertStore:
    """Open the alert database that ``--state`` names, by default the database of the results."""
    from lockstep.alerts.database.connection import Database
    from lockstep.alerts.database.location import default_state
    from lockstep.alerts.database.store import AlertStore

    check_locations(args)
    return AlertStore(Database(args.state or default_state(results_folder(args))))
