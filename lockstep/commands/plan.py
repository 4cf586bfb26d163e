"""``lockstep plan``: say which commits to measure next, on which GPU, in how many GPU seconds, and why."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from asv.commands import Command
from asv.console import log

from lockstep.asv.commit_range import commits_of
from lockstep.commands.alert_options import add_sources, run_analysis
from lockstep.commands.shards_option import add_shards_option, fleet_of
from lockstep.commands.verb import Verb
from lockstep.fleet.next_commits import Costs, Doubt, Known, Plan, measured_by, plan, total
from lockstep.fleet.shard import Shard, followed_by
from lockstep.processes.exit_status import OK
from lockstep.record.file import SUFFIX, RecordError, newest_record, read_records
from lockstep.record.json_output import print_json
from lockstep.record.model import Provenance, Record
from lockstep.suite.discovery import Workspace


class PlanVerb(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Say what to measure next, and why.

    List the commits of a range in the order in which to measure them: the newest, bridges where cases move to another
    GPU, commits that divide the range of a change, repeats where the detector is unsure, then gaps. Needs no GPU. Exit
    status: 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("range", help="commits, as for `lockstep run`; NEW are those without results")
        add_shards_option(parser, "divide the cases among these GPUs")
        parser.add_argument("--budget", type=float, metavar="SECONDS", help="most GPU seconds, of all GPUs together")
        parser.add_argument("--machine", help="machine whose results count (default: the one measured last)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--commits",
            type=Path,
            metavar="FILE",
            help="write the hashes to measure into a file, for `lockstep run HASHFILE:FILE --shards N`",
        )
        parser.add_argument(
            "--github", action="store_true", help="write `commits` (their number) and `matrix` to $GITHUB_OUTPUT"
        )
        add_sources(parser)

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace, **kwargs: Any) -> int:
        """Make the plan, print it, and return the exit status."""
        results = Path(args.results or conf.results_dir)
        suites = Workspace.of(conf).suites
        shards = fleet_of(args.shards or "1")
        machine = args.machine or _measured_last(results)
        files = _files(results / machine) if machine else []
        doubts, line = (_doubts(args, machine), commits_of(conf, "ALL")) if files else ((), ())
        known = Known(followed_by(shards, list(suites.values())), measured_by(files), Costs.of(files), doubts, line)
        made = plan(commits_of(conf, args.range), known, None if args.budget == math.inf else args.budget)
        hashes = list(dict.fromkeys(step.commit for step in made.steps if not step.again))
        if args.commits:
            args.commits.parent.mkdir(parents=True, exist_ok=True)
            args.commits.write_text("".join(f"{commit}\n" for commit in hashes), encoding="utf-8")
        if args.github:
            with Path(os.environ.get("GITHUB_OUTPUT") or os.devnull).open("a", encoding="utf-8") as file:
                file.write(f"commits<<END\n{len(hashes)}\nEND\nmatrix<<END\n{json.dumps(_matrix(shards))}\nEND\n")
        if args.json:
            print_json(_json(made, shards, known.costs))
        else:
            _print(made, shards, known.costs)
        return OK


def _measured_last(results: Path) -> str:
    """Return the machine with the newest provenance file of a GPU or CPU; "" without results."""
    machines = [folder.name for folder in results.glob("*/") if not folder.name.startswith("sm_")]
    return max(machines, key=lambda machine: newest_record(results, machine), default="")


def _files(folder: Path) -> list[tuple[Provenance, Sequence[Record]]]:
    files: list[tuple[Provenance, Sequence[Record]]] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            files.append(read_records(path))
        except RecordError as error:
            log.warning(str(error))
    return files


def _doubts(args: argparse.Namespace, machine: str) -> list[Doubt]:
    """Return the changes that more measurements would settle; none, with a word, without the extra `history`."""
    try:
        _, now = run_analysis(args)
    except ModuleNotFoundError as error:
        log.warning(f"without {error.name} no change is known: the plan has only the newest commit and gaps")
        return []
    doubts: dict[tuple[str, tuple[str, ...]], Doubt] = {}
    for change in sorted(now.changes, key=lambda change: (-abs(change.weight), change.key)):
        unsure = change.suppressed == "unsure"
        settled = change.suppressed in ("small", "noise") or (change.exact and not unsure)
        if change.series.machine == machine and not settled:
            series, commits = change.series, (change.commit,) if unsure else change.between
            text = f"{series.suite} {series.variant} {change.size:+.1%}"
            doubt = Doubt("unsure" if unsure else "open", commits, frozenset({(series.suite, series.case)}), text)
            largest = doubts.setdefault((doubt.kind, commits), doubt)
            doubts[doubt.kind, commits] = replace(largest, cases=largest.cases | doubt.cases)
    return list(doubts.values())


def _matrix(shards: Sequence[Shard]) -> dict[str, Any]:
    """Return the matrix of a job of GitHub Actions."""
    return {"include": [{"shard": str(shard), "name": shard.name} for shard in shards]}


def _json(made: Plan, shards: Sequence[Shard], costs: Costs) -> dict[str, Any]:
    return {
        "shards": [str(shard) for shard in shards],
        "matrix": _matrix(shards),
        "cases_with_known_cost": len(costs.cases),
        "left_out": made.left_out,
        "seconds": made.seconds,
        "steps": [
            {
                "commit": step.commit,
                "why": step.why,
                "again": step.again,
                "seconds": step.seconds,
                "shards": [
                    {
                        "shard": str(task.shard),
                        "seconds": task.seconds,
                        "cases": [{"suite": suite, "case": case} for suite, case in task.cases],
                    }
                    for task in step.tasks
                ],
            }
            for step in made.steps
        ],
    }


def _print(made: Plan, shards: Sequence[Shard], costs: Costs) -> None:
    for step in made.steps:
        shares = ", ".join(f"{task.shard.place}: {len(task.cases)} cases {_text(task.seconds)}" for task in step.tasks)
        print(f"{step.commit[:8]}  {_text(step.seconds):>9}  {step.why}  ({shares})")
    spent = f"{len(made.steps)} steps in {_text(made.seconds)} of {len(shards)} GPUs"
    print(f"{spent}; {made.left_out} do not fit into the budget")
    for shard in shards:
        print(f"shard {shard}: {_text(total(made.tasks_of(shard)))}")
    if not costs.cases:
        print("No cost is known before something was measured")


def _text(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.0f} s"
