"""``lockstep referee``: is a candidate correct, honest and faster than the incumbent, and how certainly?"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.commands import Command
from asv.config import Config

from lockstep.commands.gate import share
from lockstep.commands.shared_options import add_repeatable
from lockstep.commands.verb import Verb
from lockstep.processes.import_torch import load_torch
from lockstep.record.shared_fields import json_line
from lockstep.referee.error_rate import Search
from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.referee.verdict import CORRECT, Outcome, Verdict
from lockstep.suite.discovery import Workspace

if TYPE_CHECKING:
    from lockstep.referee.loop import Referee

#: Exit status if candidates are correct but none is faster, and exit status if none is correct.
NOT_FASTER, NOT_CORRECT = 1, 2


class RefereeVerb(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Is a candidate correct, honest and faster than the incumbent?

    Judge candidates from files against an incumbent, one after another; a faster candidate becomes the incumbent.
    Without candidates, read JSON lines from standard input (docs/referee.md).
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument(
            "candidates",
            nargs="*",
            metavar="FILE[:FUNCTION]",
            help="a candidate: a file of Python, a solution's JSON, or a variant of the suite",
        )
        problem = parser.add_mutually_exclusive_group(required=True)
        problem.add_argument("--suite", metavar="NAME|FILE.py", help="problem: a suite, by its name or in a file")
        problem.add_argument("--kernelbench", metavar="FILE.py", help="problem: a KernelBench file")
        problem.add_argument("--flashinfer", metavar="FILE.json", help="problem: a FlashInfer-Bench definition")
        parser.add_argument(
            "--against", default="", metavar="VARIANT|FILE", help="the incumbent (default: the problem's baseline)"
        )
        parser.add_argument("--keep", action="store_true", help="do not replace the incumbent by a faster candidate")
        add_repeatable(parser, "--case", "M=8", "cases with these axis values")
        parser.add_argument(
            "--all",
            action="store_true",
            help="judge at every case (default: the first; of a definition all)",
        )
        parser.add_argument(
            "--min-effect", type=share, default=0.005, metavar="0.5%", help="smallest speedup that counts"
        )
        parser.add_argument(
            "--error-rate", type=share, default=0.01, metavar="1%", help="probability of any false 'faster' in the loop"
        )
        parser.add_argument("--tolerance", type=share, metavar="1e-4", help="accepted error (default: the problem's)")
        parser.add_argument("--precision", default="float32", help="dtype of a KernelBench problem (default: float32)")
        parser.add_argument(
            "--workloads", default="", metavar="FILE.jsonl", help="workloads of a FlashInfer-Bench definition"
        )
        parser.add_argument(
            "--limit",
            type=float,
            default=60.0,
            metavar="SECONDS",
            help="seconds without progress after which a candidate counts as hung",
        )
        parser.add_argument("--json", action="store_true", help="print verdicts as JSON, one on each line")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Judge the candidates and print the verdicts. asv's configuration is read only to find a suite by name."""
        source = _source(args)
        search = Search(args.min_effect, args.error_rate)
        started = time.monotonic()
        load_torch()
        # Imported here: torch is slow to import, and asv's other commands do without it.
        from lockstep.referee.loop import Referee

        with closing(Referee(source, search, args.limit, keep=args.keep)) as referee:
            submissions = [referee.submission_of(place) for place in args.candidates]
            rival = args.against if args.against and not source.against else ""
            referee.open(referee.submission_of(rival) if rival else None)
            for note in referee.notes:
                print(f"note: {note}", file=sys.stderr)
            for verdict in map(referee.judge, submissions) if submissions else _from_lines(referee):
                print(json_line(asdict(verdict)).strip() if args.json else verdict.sentence(), flush=True)
            print(_summary(referee, time.monotonic() - started), file=sys.stderr)
            return _status(referee.counts)


def _source(args: argparse.Namespace) -> ProblemDefinition:
    """Return the problem that the command line names.

    Raises:
        SuiteError: there is no suite with that name.
    """
    common: dict[str, Any] = {
        "cases": tuple(args.case),
        "every": args.all,
        "tolerance": args.tolerance,
        "precision": args.precision,
        "workloads": str(Path(args.workloads).resolve()) if args.workloads else "",
    }
    if args.kernelbench:
        return ProblemDefinition("kernelbench", str(Path(args.kernelbench).resolve()), **common)
    if args.flashinfer:
        return ProblemDefinition("flashinfer", str(Path(args.flashinfer).resolve()), **common)
    variant = "" if args.against.partition(":")[0].endswith(".py") else args.against
    if args.suite.partition(":")[0].endswith(".py"):
        return ProblemDefinition("suite", str(Path(args.suite).resolve()), against=variant, **common)
    workspace = Workspace.of(Config.load(args.config))
    return ProblemDefinition(
        "suite",
        args.suite,
        against=variant,
        benchmarks=str(workspace.benchmark_dir),
        checkout=str(workspace.folder),
        packages=workspace.packages,
        **common,
    )


def _from_lines(referee: Referee) -> Iterator[Verdict]:
    """Yield a verdict for each line of standard input, including lines that cannot be used."""
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                submission = _submission(referee, line)
            except ValueError as error:
                yield Verdict(f"line {number}", referee.incumbent, Outcome.BROKEN, reason=str(error))
            else:
                yield referee.judge(submission)


def _submission(referee: Referee, line: str) -> Submission:
    request = json.loads(line)
    if not isinstance(request, dict) or not all(isinstance(value, str) for value in request.values()):
        raise ValueError('the line must be a JSON object of texts: {"file": "FILE.py:FUNCTION"} or {"source": "…"}')
    if "source" in request:
        suffix = ".json" if request["source"].lstrip().startswith("{") else ".py"
        return referee.submission(request["source"], request.get("name", ""), request.get("function", ""), suffix)
    if "file" in request:
        return referee.submission_of(request["file"], request.get("name", ""))
    raise ValueError('the JSON object has neither "file" nor "source"')


def _summary(referee: Referee, seconds: float) -> str:
    """Return a summary: number of verdicts, candidates per minute, and the loop's error rate."""
    counts = referee.counts
    judged = sum(counts.values())
    outcome_counts = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "none"
    pace = f" ({seconds / judged:.2f} s each, {60 * judged / seconds:.0f} a minute)" if judged else ""
    search = referee.search
    return (
        f"{judged} candidates in {seconds:.1f} s{pace}: {outcome_counts}. {search.finals} finals. "
        f"Incumbent: {referee.incumbent}\n"
        f"At most {search.error_rate:.3g} of such loops call a candidate faster by more than {search.min_effect:.2%} "
        "although it is not."
    )


def _status(counts: dict[Outcome, int]) -> int:
    if counts[Outcome.FASTER] or not any(counts.values()):
        return 0
    return NOT_FASTER if any(counts[outcome] for outcome in CORRECT) else NOT_CORRECT
