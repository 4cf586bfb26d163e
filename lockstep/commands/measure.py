"""``lockstep measure FAMILY``: the engineer's quick loop on the working tree, no commit and no asv."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from asv.commands import Command
from rich.console import Console

from lockstep.loading import load_torch
from lockstep.record import Record
from lockstep.suite import CACHE_STATES, Case, Suite, SuiteError
from lockstep.suites import load_suites, match_cases, nearest, pick_suites


class Measure(Command):  # type: ignore[misc]  # asv has no types
    """Measure one family of the working tree."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Arguments of the verb."""
        parser: argparse.ArgumentParser = subparsers.add_parser(
            "measure",
            help="Measure a family of the working tree",
            description="Measure a family of the working tree: every variant checked, then all in lockstep.",
        )
        parser.add_argument("family", help="a family, or one of its suites (grouped.mlp)")
        parser.add_argument(
            "--case",
            action="append",
            default=[],
            metavar="M=8,K=4096",
            help="cases whose axes have these values; may repeat",
        )
        parser.add_argument(
            "--variants", nargs="+", metavar="NAME", help="only these (the baseline always comes along)"
        )
        parser.add_argument("--l2", choices=[*CACHE_STATES, "both"], help="cache state (default: cold; warm on a CPU)")
        parser.add_argument("--quick", "-q", action="store_true", help="one short look, to find errors")
        parser.add_argument("--all", action="store_true", help="every case; without it and --case, the first eight")
        parser.add_argument("--again", action="store_true", help="each variant a second time: an A/A comparison")
        parser.add_argument("--seed", type=int, help="of inputs, places and order (default: a new one)")
        parser.add_argument("--json", action="store_true", help="records as JSON, one a line")
        parser.set_defaults(func=cls.run_from_args)
        return parser

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Measure and print; exit status 2 if a series failed."""
        suites = pick_suites(load_suites(Path(conf.benchmark_dir)), args.family)
        for suite in suites:
            _refuse_unknown(suite, args.variants or [], args.case)
        # The device comes last: a typo must not cost the import of torch.
        load_torch()
        from lockstep.device import open_device
        from lockstep.measure import Measurer
        from lockstep.pairs import QUICK, Plan
        from lockstep.table import reasons, records_table

        console = Console()
        if console.width < 160 and not console.is_terminal:
            console = Console(width=200)
        device = open_device()
        measurer = Measurer(device, QUICK if args.quick else Plan.on(device))
        if args.seed is not None:
            measurer.seed = args.seed
        failed = False
        for suite in suites:
            shown: list[Record] = []
            for case, l2 in _selected(suite, args, measurer.device.kind):
                variants = args.variants or suite.variants()
                twins = [suite.baseline, *variants] if args.again else []
                records = measurer.measure(suite, case, l2, variants, twins=twins)
                failed |= any(record.state == "failed" for record in records)
                shown += records
                if args.json:
                    for record in records:
                        print(json.dumps(asdict(record)), flush=True)
            if not args.json:
                console.print(records_table(shown, f"{suite.name}: baseline {suite.baseline}"))
                for line in reasons(shown):
                    console.print(line, markup=False, highlight=False)
        return 2 if failed else 0


def _refuse_unknown(suite: Suite, variants: Sequence[str], cases: Sequence[str]) -> None:
    known = suite.variants()
    for name in variants:
        if name not in known:
            raise SuiteError(f"{suite.name} has no variant {name!r}{nearest(name, known)}")
    for text in cases:
        match_cases(suite, text)


def _selected(suite: Suite, args: argparse.Namespace, device: str) -> Iterator[tuple[Case, str]]:
    """Cases and cache states asked for."""
    chosen = list(suite.quick) if device == "cpu" else list(suite.cases)
    if args.case:
        chosen = [case for text in args.case for case in match_cases(suite, text)]
    elif not args.all:
        chosen = chosen[:8]
    usual = "warm" if device == "cpu" else "cold"
    for case in dict.fromkeys(chosen):
        for l2 in CACHE_STATES if args.l2 == "both" else (args.l2 or usual,):
            yield case, l2
