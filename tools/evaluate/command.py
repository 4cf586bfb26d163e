"""``python -m tools evaluate``: score our detector, other methods and the oracle on series with known changes."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from asv.commands import Command

from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import UsageError
from lockstep.record.console import wide_console

#: Seeds of the reported scores. The detector's settings were chosen on other seeds, below 100.
SEEDS = (201, 202)


class Evaluate(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Score the change detection.

    Run our change detection, other methods, and an upper bound over series with planted steps: the oracle, which knows
    the noise, the size of the step, and that there is one.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument(
            "--seeds", type=int, nargs="+", default=list(SEEDS), help="seeds of the series (default: %(default)s)"
        )
        parser.add_argument(
            "--series", type=int, default=200, help="number of series of each kind and seed (default: %(default)s)"
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
        parser.add_argument("--processes", type=int, default=2, help="number of processes (default: %(default)s)")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Score every method on the series and print a table. The command needs no asv.conf.json.

        Raises:
            UsageError: a number is too small, or a folder of ``--trees`` does not exist.
        """
        for name in ("series", "processes"):
            if getattr(args, name) < 1:
                raise UsageError(f"--{name} {getattr(args, name)}: it must be at least 1")
        if min(args.seeds) < 0:
            raise UsageError(f"--seeds {min(args.seeds)}: a seed must be at least 0")
        for tree in args.trees or ():
            if not tree.is_dir():
                raise UsageError(f"--trees {tree}: there is no such folder")
        # Imported here, because every start of the command loads this module.
        import numpy as np

        from tools.evaluate.board import board_table, fill
        from tools.evaluate.clear_steps import read_tree
        from tools.evaluate.plain_shapes import plain_shapes
        from tools.evaluate.rivals import RIVALS
        from tools.evaluate.samples import STANDARD, Sample, standard

        samples: list[Sample] = []
        for tree in args.trees or ():
            with TemporaryDirectory() as cache:
                samples += read_tree(tree, Path(cache))
        for seed in args.seeds if not args.trees else ():
            rng = np.random.default_rng(seed)
            samples += plain_shapes(rng, max(1, args.series // 4)) if args.shapes else standard(rng, args.series)
        board = fill(samples, rivals=() if args.alone else RIVALS, processes=args.processes, online=not args.trees)
        wide_console().print(board_table(board, () if args.trees or args.shapes else STANDARD))
        return 0
