"""Score the detector, and other methods, on trees of recorded results: ``evaluate --trees``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from lockstep.record.console import wide_console
from tools.evaluate.board import Board, fill, tree_table
from tools.evaluate.clear_steps import SIDE, read_tree
from tools.evaluate.rivals import PEERS
from tools.evaluate.samples import Sample


def score_trees(args: argparse.Namespace) -> int:
    """Score the clear steps of the folders ``args.trees``, and print the tables."""
    samples: list[Sample] = []
    for tree in args.trees:
        with TemporaryDirectory() as cache:
            samples += read_tree(tree, Path(cache))
    board = fill(samples, rivals=() if args.alone else PEERS, processes=args.processes, online=False)
    if args.missed:
        args.missed.write_text("".join(f"{json.dumps(line)}\n" for line in missed(samples, board)))
    if args.json:
        print(json.dumps(board.as_json()))
        return 0
    console = wide_console()
    console.print(tree_table(board))
    points = sum(len(sample.trend) for sample in samples)
    console.print(f"lockstep: {len(samples)} series, {points} points, {board.seconds:.1f} s of CPU", markup=False)
    return 0


def missed(samples: Sequence[Sample], board: Board) -> Iterator[dict[str, object]]:
    """Yield each clear step that our detector does not tell within one point, with the values around it."""
    for sample, changes in zip(samples, board.changes, strict=True):
        for step, size in zip(sample.steps, sample.sizes, strict=True):
            if all(abs(change.index - step) > 1 for change in changes):
                first = max(0, step - 2 * SIDE)
                yield {
                    "tree": sample.kind,
                    "series": json.loads(sample.name),
                    "index": step,
                    "size": size,
                    "told": [change.index for change in changes],
                    "first": first,
                    "values": sample.trend.values[first : step + 2 * SIDE].tolist(),
                }
