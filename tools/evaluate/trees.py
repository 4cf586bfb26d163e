"""Score the detector, and other methods, on trees of recorded results: ``evaluate --trees``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from lockstep.record.console import wide_console
from tools.evaluate.board import OURS, Board, fill, plain_table, tree_table
from tools.evaluate.clear_steps import SIDE, read_tree
from tools.evaluate.feed import Fed, feed
from tools.evaluate.rivals import PEERS
from tools.evaluate.samples import Sample


def score_trees(args: argparse.Namespace) -> int:
    """Score the clear steps of the folders ``args.trees``, feed their commits one by one, and print both tables."""
    samples: list[Sample] = []
    for tree in args.trees:
        with TemporaryDirectory() as cache:
            samples += read_tree(tree, Path(cache))
    board = fill(samples, rivals=() if args.alone else PEERS, processes=args.processes, online=False)
    fed = feed(samples, args.fed, () if args.alone else PEERS, args.processes)
    if args.missed:
        args.missed.write_text("".join(f"{json.dumps(line)}\n" for line in missed(samples, board)))
    if args.json:
        print(json.dumps([*board.as_json(), *map(asdict, fed)]))
        return 0
    console = wide_console()
    console.print(tree_table(board))
    console.print(_fed_table(fed))
    points = sum(len(sample.trend) for sample in samples)
    console.print(f"lockstep: {len(samples)} series, {points} points, {board.seconds:.1f} s of CPU", markup=False)
    return 0


def _fed_table(fed: Sequence[Fed]) -> Table:
    """Return a table of what each method told and took back while commits were fed one by one."""
    table = plain_table("\nCommits fed one by one: changes told, and what became of them")
    for name in ("tree", "method", "told", "vanished", "vanished, returned", "moved by > 2", "vanished though clear"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("tree", "method") else "right")
    table.add_column("series", justify="right")
    for row in fed:
        counts = (row.vanished, row.returned, row.moved, row.clear)
        shares = [f"{count} ({count / row.told:.1%})" if row.told else "0" for count in counts]
        table.add_row(row.tree if row.method == OURS else "", row.method, str(row.told), *shares, str(row.series))
    return table


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
