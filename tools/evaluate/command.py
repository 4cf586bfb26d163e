"""``python -m tools evaluate``: score our detector, other methods and the oracle on series with known changes."""

from __future__ import annotations

import argparse
import json
import pkgutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from asv.commands import Command

from lockstep.commands.cli import UsageError
from lockstep.record.console import wide_console

#: Seeds of the reported scores. The detector's settings were chosen on other seeds, below 100.
SEEDS = (201, 202)

#: Default history whose noise is used.
RECORDED = Path("results/h200-unlocked")


class Evaluate(Command):  # type: ignore[misc]  # asv has no types
    """``evaluate``: scores the change detector and other methods on series with known changes."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add ``evaluate`` to the command line."""
        parser: argparse.ArgumentParser = subparsers.add_parser(
            "evaluate",
            help="Score the change detection",
            description="Run our change detection, other methods, and an upper bound over series with planted steps: "
            "the oracle, which knows the noise, the size of the step, and that there is one.",
        )
        parser.add_argument(
            "--seeds", type=int, nargs="+", default=list(SEEDS), help="seeds of the series (default: %(default)s)"
        )
        parser.add_argument(
            "--series", type=int, default=200, help="number of series of each kind and seed (default: %(default)s)"
        )
        parser.add_argument("--quick", action="store_true", help="one seed, few series, only fast methods")
        parser.add_argument(
            "--set",
            nargs="+",
            default=[],
            metavar="NAME=NUMBER",
            help="give constants of lockstep.detect other values, in one process, to see what each brings",
        )
        parser.add_argument("--alone", action="store_true", help="leave out the other methods")
        parser.add_argument("--shapes", action="store_true", help="score series of other shapes instead")
        parser.add_argument(
            "--trees",
            type=Path,
            nargs="+",
            metavar="PATH",
            help="score the clear steps of results folders instead",
        )
        parser.add_argument(
            "--fed",
            type=int,
            default=200,
            help="--trees: most series of a tree fed by commits (default: %(default)s)",
        )
        parser.add_argument(
            "--missed",
            type=Path,
            metavar="FILE",
            help="--trees: write the clear steps that we miss to JSON lines",
        )
        parser.add_argument("--processes", type=int, default=2, help="number of processes (default: %(default)s)")
        parser.add_argument(
            "--recorded",
            type=Path,
            help=f"folder of recorded results whose noise is used as well (default: {RECORDED}, if it exists)",
        )
        parser.add_argument("--json", action="store_true", help="print the scores as one JSON list")
        parser.set_defaults(func=cls.run_from_args)
        return parser

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Run the command, which needs no asv.conf.json."""
        return cls.run_from_conf_args(None, args)

    @classmethod
    def run_from_conf_args(cls, _conf: Any, args: argparse.Namespace) -> int:
        """Score every method on the generated series and print the tables.

        Raises:
            UsageError: a number is too small, or the folder of ``--recorded`` does not exist.
        """
        for name, least in (("series", 1), ("processes", 1), ("fed", 1)):
            if getattr(args, name) < least:
                raise UsageError(f"--{name} {getattr(args, name)}: it must be at least {least}")
        if min(args.seeds) < 0:
            raise UsageError(f"--seeds {min(args.seeds)}: a seed must be at least 0")
        for tree in args.trees or ():
            if not tree.is_dir():
                raise UsageError(f"--trees {tree}: there is no such folder")
        if args.recorded and not args.recorded.is_dir():
            raise UsageError(f"--recorded {args.recorded}: there is no such folder")
        if args.set:
            # Worker processes would not see the values.
            args.processes = 1
            set_constants(args.set)
        if args.trees:
            # Imported here, because every start of the command loads this module.
            from tools.evaluate.trees import score_trees

            return score_trees(args)
        history = args.recorded or RECORDED
        # Imported here, because every start of the command loads this module.
        import numpy as np

        from tools.evaluate.board import fill, shape_table, standard_table
        from tools.evaluate.plain_shapes import plain_shapes
        from tools.evaluate.recorded import from_recorded, run_noise
        from tools.evaluate.rivals import PEERS, RIVALS
        from tools.evaluate.samples import others, standard
        from tools.evaluate.shapes import shapes

        count = 5 if args.quick else args.series
        noises = run_noise(history) if history.is_dir() and not args.shapes else []
        samples = []
        for seed in args.seeds[:1] if args.quick else args.seeds:
            rng = np.random.default_rng(seed)
            if args.shapes:
                for make in (plain_shapes, shapes, others):
                    samples += make(rng, max(1, count // 4))
            else:
                samples += standard(rng, count)
                samples += from_recorded(rng, noises, count) if noises else []
        methods = PEERS if args.shapes else RIVALS
        rivals = [] if args.alone else [rival for rival in methods if not args.quick or rival.milliseconds < 1]
        board = fill(samples, rivals=rivals, processes=args.processes)
        if args.json:
            print(json.dumps(board.as_json()))
            return 0
        console = wide_console()
        console.print(shape_table(board, board.rows) if args.shapes else standard_table(board))
        recorded = sorted((row for row in board.rows if row.startswith("recorded")), key=lambda row: ">" in row)
        if noises:
            spread = np.quantile([noise.spread for noise in noises], [0.1, 0.5, 0.9])
            percentages = " / ".join(f"{value:.2%}" for value in spread)
            title = f"\nNoise and intervals of {len(noises)} unchanged series of {history} ({percentages})\n"
            console.print(shape_table(board, recorded, title))
        elif not args.shapes:
            console.print(f"no series with recorded noise: the folder {history} does not exist", markup=False)
        commits = sum(len(sample.trend) for sample in samples)
        console.print(f"lockstep: {len(samples)} series, {commits} commits, {board.seconds:.1f} s of CPU", markup=False)
        return 0


def set_constants(texts: Sequence[str]) -> None:
    """Give constants of ``lockstep.detect`` the values that texts such as ``WINDOW=64`` state, in every module.

    Raises:
        UsageError: a text has another form, or no module has such a constant.
    """
    # Imported here, because every start of the command loads this module.
    from lockstep import detect

    modules = [import_module(f"{detect.__name__}.{module.name}") for module in pkgutil.iter_modules(detect.__path__)]
    for text in texts:
        name, _, number = text.partition("=")
        holders = [module for module in modules if isinstance(getattr(module, name, None), int | float)]
        try:
            value = type(getattr(holders[0], name))(float(number))
        except (IndexError, ValueError):
            raise UsageError(f"--set {text}: write NAME=NUMBER, with a constant of lockstep.detect") from None
        for module in holders:
            setattr(module, name, value)
