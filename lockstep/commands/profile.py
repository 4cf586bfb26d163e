"""``lockstep profile FAMILY VARIANT CASE``: run one arm in a marked range for ncu and nsys; else asv's ``profile``.

Exit codes: 0 done, 3 no GPU or the kernel hung, 4 wrong usage.
"""

from __future__ import annotations

import argparse
import threading
from typing import Any

from asv.commands.asv_profiling import Profile as AsvProfile
from asv.commands.common_args import positive_int

from lockstep.processes.deadline import deadline
from lockstep.processes.exit_status import BROKEN
from lockstep.processes.import_torch import load_torch
from lockstep.record.console import line_console
from lockstep.suite.definition import CACHE_STATES, SuiteError
from lockstep.suite.discovery import Workspace
from lockstep.suite.selection import expect_variants, nearest


class Profile(AsvProfile):  # type: ignore[misc]  # asv has no types
    """asv's ``profile``, extended to families. The verb replaces asv's verb because both have the same name."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add asv's arguments of ``profile``, the argument CASE and three options."""
        parser: argparse.ArgumentParser = super().setup_arguments(subparsers)
        parser.usage = "%(prog)s FAMILY VARIANT CASE [--l2 cold|warm] [--calls N]\n       %(prog)s BENCHMARK [REVISION]"
        parser.description = (
            "Run one variant of a family at one case inside a marked range, and print the commands for ncu and nsys. "
            "With the full name of an ordinary asv benchmark, run asv's profiler."
        )
        parser.add_argument("case", nargs="?", help="one case of the family: M=8,K=4096,N=2048")
        parser.add_argument("--l2", choices=CACHE_STATES, default="cold", help="cache state (default: %(default)s)")
        parser.add_argument("--calls", type=positive_int, default=3, help="calls to profile (default: %(default)s)")
        parser.add_argument(
            "--limit",
            type=float,
            default=1800.0,
            help="seconds after which a kernel counts as hung (default: %(default)g)",
        )
        return parser

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace, **kwargs: Any) -> int | None:
        """Run our profiler if the first argument names a family or a suite, else asv's profiler."""
        suites = Workspace.of(conf).suites
        families = {suite.family for suite in suites.values()}
        if args.benchmark not in {*suites, *families}:
            if args.case:
                raise SuiteError(f"no family {args.benchmark!r}{nearest(args.benchmark, suites)}")
            code: int | None = super().run_from_conf_args(conf, args, **kwargs)
            return code
        if args.benchmark not in suites:
            of_family = [name for name, suite in suites.items() if suite.family == args.benchmark]
            raise SuiteError(f"{args.benchmark} has several suites; name one of {', '.join(of_family)}")
        suite = suites[args.benchmark]
        variant = args.revision
        if variant is None:
            raise SuiteError(
                f"name a variant of {suite.name}: lockstep profile {suite.name} VARIANT CASE"
                f"; its variants are {', '.join(suite.variants())}"
            )
        expect_variants([variant], [suite])
        case = suite.case(args.case or "")
        if not 0 < args.limit < threading.TIMEOUT_MAX:
            raise SuiteError(f"--limit {args.limit:g}: must be a number of seconds above 0")
        # The device is opened last, so that a typo is reported before torch is imported.
        load_torch()
        from lockstep.timing.device import open_device
        from lockstep.timing.nsight import commands, run_marked

        console = line_console()
        for command in commands(suite.name, variant, case.label, args.l2, args.calls).values():
            console.print(command)
        device = open_device()
        if device.kind == "cpu":
            console.print("There is no GPU: run one of these commands on a machine with a GPU and this working tree.")
            return BROKEN
        try:
            with deadline(args.limit):
                sets = run_marked(device, suite, variant, case, args.l2, args.calls)
        except NotImplementedError as error:
            raise SuiteError(f"{suite.name} {variant} cannot run at {case.label}: {error}") from error
        console.print(f"{args.calls} calls of {variant} over {sets} argument sets, inside the range", highlight=False)
        return 0
