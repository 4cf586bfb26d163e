"""``lockstep gate``: is head slower than base, for which shapes, and with which certainty?

Exit codes: 0 pass, 1 slower than allowed, 2 a case fails or is wrong, 3 no verdict is possible, 4 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from asv.commands import Command

from lockstep.commands.cli import expect_folder
from lockstep.commands.clocks import clock_target
from lockstep.commands.script_option import add_script_option, asked_of, releases_of
from lockstep.commands.shared_options import (
    STDOUT,
    add_json_file_option,
    add_repeatable,
    add_retune_option,
    table_console,
    tuned_file,
    write_json_file,
)
from lockstep.commands.verb import Verb
from lockstep.gate.model import CHECKS, COSTS
from lockstep.gate.report.github import annotate, append_summary, write_outputs
from lockstep.gate.report.report import EXIT, Report
from lockstep.gate.report.terminal import show
from lockstep.gate.request import Request
from lockstep.gate.run import run
from lockstep.gate.versions import prefix_of
from lockstep.processes.exit_status import Unusable, UsageError
from lockstep.processes.sigterm import sigterm_interrupts
from lockstep.processes.toolchain.release import Release
from lockstep.record.console import line_console
from lockstep.scripts.gate_script import gate_script
from lockstep.suite.commit_sources import WORKING_TREE
from lockstep.suite.definition import CACHE_STATES, Suite
from lockstep.suite.discovery import Workspace
from lockstep.suite.selection import match_labels
from lockstep.suite.thresholds import FILE, read_thresholds

#: Maximum seconds between two events of a worker; asv.conf.json can set fewer.
SILENCE_S = 60.0


class Gate(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Compare base and head in one process: is a change slower?

    Compare head with base, case by case, both in one process on the same buffers. Exit codes: 0 pass, 1 slower than
    allowed, 2 a case fails or is wrong, 3 no verdict is possible, 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("--base", default="HEAD", metavar="REF", help="version to compare with (default: HEAD)")
        parser.add_argument(
            "--head", default=WORKING_TREE, metavar="REF", help="version to test (default: ., the working tree)"
        )
        parser.add_argument(
            "--budget",
            type=_seconds,
            default=120.0,
            metavar="120s",
            help="time for measuring (default: 120s), after imports and the comparison of the code",
        )
        parser.add_argument(
            "--min-effect", type=share, metavar="1%", help=f"smallest change that counts (default: as {FILE} says)"
        )
        add_repeatable(parser, "--family", "NAME", "family to judge")
        add_repeatable(parser, "--case", "M=8,K=4096", "cases with these axis values")
        add_repeatable(parser, "--variant", "NAME", "only this variant")
        parser.add_argument("--l2", choices=[*CACHE_STATES, "both"], default="both", help="cache state (default: both)")
        parser.add_argument(
            "--costs",
            nargs="*",
            choices=COSTS,
            metavar="NAME",
            help=f"also judge these costs of a call: {', '.join(COSTS)}. Without names: those that the suite states, "
            "with deterministic (all calls give the same bits) and error (distance from the reference); all if it "
            "states none",
        )
        parser.add_argument("--ignore-fingerprints", action="store_true", help="also measure cases with unchanged code")
        parser.add_argument("--require-gpu", action="store_true", help="exit with 3 if there is no GPU")
        parser.add_argument("--require-locked", action="store_true", help="exit with 3 unless the clocks are locked")
        parser.add_argument(
            "--lock", type=clock_target, metavar="MHz|base", help="lock the clocks during the run; needs root"
        )
        parser.add_argument(
            "--about", action="append", default=[], metavar="#123", help=f"pull request that [[accept]] of {FILE} names"
        )
        parser.add_argument("--seed", type=int, help="seed of buffers, order and the A/A control (default: random)")
        add_retune_option(parser)
        add_script_option(parser)
        words = "with --script: variable whose contents after a call are no result, a workspace for example"
        add_repeatable(parser, "--scratch", "NAME", words)
        parser.add_argument("--quick", "-q", action="store_true", help="measure briefly, only to find errors")
        add_json_file_option(parser, "write the report to FILE; docs/gate.md describes it")
        parser.add_argument("--markdown", type=Path, metavar="FILE", help="append the report to FILE as Markdown")
        parser.add_argument("--plain", action="store_true", help="print the headline and one line a case, no table")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> Any:
        """Compare by a script, which needs no asv.conf.json, or by suites."""
        return cls.run_from_conf_args(None, args) if args.script else super().run_from_args(args)

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Compare head with base, write the reports, and return the exit status."""
        for file in (args.json, args.markdown):
            expect_folder(file)
        say = line_console(stderr=True).print
        try:
            # A cancelled runner sends SIGTERM. The report must still be written, and the worker must end.
            with sigterm_interrupts():
                report = compare(conf, args, say)
        except (UsageError, Unusable) as error:
            _write_mistake(str(error), args.markdown)
            raise
        _write_report(report, args)
        return EXIT[report.state]


def compare(conf: Any, args: argparse.Namespace, say: Callable[[str], None]) -> Report:
    """Compare base and head, or two releases, as the options say.

    Raises:
        RefError, UsageError, ToolchainError: base or head is not a version.
    """
    releases = releases_of(args, say) or ()
    if args.script:
        return gate_script(asked_of(args, releases), say)
    if all(release.pure for release in releases):
        return run(_request(conf, args, releases), say)
    if args.costs is not None or args.lock or args.l2 == "cold":
        raise UsageError("releases of compiled code have a process each: leave out --costs, --lock and --l2 cold")
    from lockstep.scripts.gate_suites import gate_suites  # imported here: it loads the compilers' side

    return gate_suites(_request(conf, args, ()), releases, say)


def _request(conf: Any, args: argparse.Namespace, releases: Sequence[Release]) -> Request:
    packages = sorted({name for release in releases for name in release.packages})
    workspace = Workspace.of(conf)
    suites = workspace.pick(args.family)
    return Request(
        repository=workspace.folder,
        benchmark_dir=workspace.benchmark_dir,
        packages=tuple(dict.fromkeys((*workspace.packages, *packages))),
        base=args.base,
        head=args.head,
        suites={suite.name: suite for suite in suites},
        cases=match_labels(suites, args.case),
        variants=tuple(args.variant),
        l2=args.l2,
        thresholds=read_thresholds(Path.cwd() / FILE),
        min_effect=args.min_effect,
        about=(*args.about, *_pull_request()),
        budget_s=args.budget,
        silence_s=min(SILENCE_S, float(conf.default_benchmark_timeout)),
        seed=args.seed if args.seed is not None else secrets.randbits(32),
        measure_all=args.ignore_fingerprints,
        need_gpu=args.require_gpu,
        need_lock=args.require_locked,
        lock=args.lock,
        quick=args.quick,
        tuned=tuned_file(conf),
        retune=args.retune,
        costs={} if args.costs is None else {suite.name: _costs(suite, args.costs) for suite in suites},
    )


def _costs(suite: Suite, named: Sequence[str]) -> Sequence[str]:
    """Return the costs to judge: ``named``, or else those that the suite states and the checks, or else all costs."""
    stated = [cost for cost in COSTS if cost in suite.quantities]
    return named or ([*stated, *CHECKS] if stated else COSTS)


def _write_report(report: Report, args: argparse.Namespace) -> None:
    """Write the report to the terminal, to files, and to the workflow that runs this command."""
    written = next((file for file in (args.json, args.markdown) if file and file != STDOUT), None)
    write_json_file(args.json, report.to_json())
    if args.markdown:
        append_summary(report, args.markdown)
    console = table_console(args.json)
    show(report, console, plain=args.plain)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for command in annotate(report, "" if report.script else prefix_of(Path.cwd())):
            print(command, file=console.file)
    if output := os.environ.get("GITHUB_OUTPUT"):
        write_outputs(report, Path(output), str(written.resolve()) if written else "")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and (not args.markdown or args.markdown.resolve() != Path(summary).resolve()):
        append_summary(report, Path(summary))


def _write_mistake(text: str, file: Path | None) -> None:
    """Append to the Markdown of a run without a report why there is none."""
    if file:
        with file.open("a", encoding="utf-8") as report:
            report.write(f"Nothing was compared:\n\n{textwrap.indent(text, ' ' * 4)}\n")


def _pull_request() -> list[str]:
    """Return ["#123"] in a workflow that runs for pull request 123, else an empty list."""
    match = re.fullmatch(r"refs/pull/(\d+)/\w+", os.environ.get("GITHUB_REF", ""))
    return [f"#{match[1]}"] if match else []


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min)?", text.strip())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 120s or 5min")
    return float(match[1]) * (60.0 if match[2] in ("m", "min") else 1.0)


def share(text: str) -> float:
    """Return the share that a text such as ``1%`` or ``0.01`` states."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%)?", text.strip())
    value = float(match[1]) / (100.0 if match[2] else 1.0) if match else -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 1% or 0.01")
    return value
