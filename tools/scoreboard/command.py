"""``python -m tools scoreboard``: the recorded results and their targets, as one page of the documentation.

Exit codes: 0 the page is written; 4 no records or a mistake in the targets.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asv.commands import Command

from lockstep.commands.verb import Verb
from lockstep.record.console import line_console
from lockstep.suite.definition import SuiteError
from lockstep.suite.discovery import load_suites
from lockstep.suite.selection import nearest
from tools.scoreboard.page import machines_of, page, read_newest, read_targets

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
        parser.add_argument("--output", type=Path, default=PAGE, help="page file, - for stdout (default: %(default)s)")

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Write the page to a file, or print it."""
        results, benchmarks = Path(conf.results_dir), Path(conf.benchmark_dir)
        machines = machines_of(results)
        if not machines:
            raise SuiteError(f"{results} holds no records: measure with `lockstep run` first")
        names = [folder.name for folder in machines]
        if args.machine and args.machine not in names:
            raise SuiteError(f"{results} has no machine {args.machine!r}{nearest(args.machine, names)}")
        folder = results / (args.machine or names[0])
        targets = read_targets(benchmarks / "targets.toml")
        recorded = read_newest(folder, RIVALS / f"{folder.name}.jsonl")
        command = "python -m tools scoreboard"
        if args.machine:
            command += f" --machine {args.machine} --output {args.output}"
        text = page(recorded, load_suites(benchmarks).values(), targets, command)
        if str(args.output) == "-":
            print(text, end="")
        else:
            args.output.write_text(text, encoding="utf-8")
            line_console().print(f"wrote {args.output}")
        return 0
