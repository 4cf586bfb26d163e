"""``python -m tools scoreboard``: the recorded results and their targets, as one page of the documentation.

Exit codes: 0 the page is written, or equals the committed page; 1 ``--check`` found a difference; 4 no records or a
mistake in the targets.
"""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Any

from asv.commands import Command

from lockstep.commands.verb import Verb
from lockstep.record.console import line_console
from lockstep.suite.definition import CACHE_STATES, SuiteError
from lockstep.suite.discovery import load_suites
from lockstep.suite.selection import nearest
from tools.scoreboard.page import TargetError, machines_of, page, read_newest, read_targets

#: Path of the page, relative to the folder of asv.conf.json.
PAGE = Path("docs/evidence/kernels/h200.md")


#: Folder of the records beside rivals, one file for each machine.
RIVALS = Path("docs/evidence/kernels/rivals")


class Scoreboard(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Make a page of the recorded results beside their targets.

    Make a Markdown page of the newest recorded result of every case: baseline, ours, ratio, floor, the source's
    headline, the target and whether it is met.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("--machine", help="folder of a machine in the results (default: the GPU with most records)")
        parser.add_argument("--variant", default="best", help="variant shown beside baseline (default: %(default)s)")
        parser.add_argument("--l2", choices=CACHE_STATES, default="cold", help="cache state (default: %(default)s)")
        parser.add_argument("--targets", type=Path, help="file of targets (default: targets.toml beside the suites)")
        parser.add_argument("--output", type=Path, default=PAGE, help="page file, - for stdout (default: %(default)s)")
        parser.add_argument(
            "--check", action="store_true", help="write nothing; exit with 1 if the page differs from the results"
        )

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Print the page, write it to a file, or compare it with the file."""
        results, benchmarks = Path(conf.results_dir), Path(conf.benchmark_dir)
        machines = machines_of(results)
        if not machines:
            raise SuiteError(f"{results} holds no records: measure with `lockstep run` first")
        names = [folder.name for folder in machines]
        if args.machine and args.machine not in names:
            raise SuiteError(f"{results} has no machine {args.machine!r}{nearest(args.machine, names)}")
        folder = results / (args.machine or names[0])
        try:
            targets = read_targets(args.targets or benchmarks / "targets.toml")
        except TargetError as error:
            raise SuiteError(str(error)) from error
        recorded = read_newest(folder, args.variant, args.l2, RIVALS / f"{folder.name}.jsonl")
        command = "python -m tools scoreboard"
        if args.machine:
            command += f" --machine {args.machine} --output {args.output}"
        text = page(recorded, load_suites(benchmarks).values(), targets, args.variant, args.l2, command)
        console = line_console()
        if str(args.output) == "-":
            print(text, end="")
            return 0
        if not args.check:
            args.output.write_text(text, encoding="utf-8")
            console.print(f"wrote {args.output}")
            return 0
        old = args.output.read_text(encoding="utf-8") if args.output.is_file() else ""
        if old == text:
            return 0
        changes = difflib.unified_diff(
            old.splitlines(), text.splitlines(), str(args.output), "from the results", "", "", 0
        )
        console.print("\n".join(changes))
        console.print(f"{args.output} differs from the results: run `{command}`")
        return 1
