"""``lockstep gate``: is head slower than base, for which shapes, and how sure?

Exit codes: 0 pass, 1 slower than allowed, 2 a case fails or is wrong, 3 the machine cannot judge, 4 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from asv.commands import Command
from rich.console import Console

from lockstep.cli import USAGE
from lockstep.commands.measure import match_cases
from lockstep.gate.client import Ring
from lockstep.gate.github import annotate, append_summary, write_outputs
from lockstep.gate.plan import select
from lockstep.gate.proof import Proof, prove
from lockstep.gate.report import EXIT, Report
from lockstep.gate.run import Judge, Terms
from lockstep.gate.table import show
from lockstep.gate.trees import WORKING_TREE, commits_between, prefix_of, take_out
from lockstep.suite import CACHE_STATES, Suite, SuiteError
from lockstep.suites import load_suites, nearest, pick_suites
from lockstep.thresholds import FILE, ThresholdsError, read_thresholds
from lockstep.watched import WorkerDied

#: A sign of life is due within this many seconds, or sooner if asv.conf.json says so.
SILENCE_S = 60.0


class Gate(Command):  # type: ignore[misc]  # asv has no types
    """Compare two versions of the kernels."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Arguments of the verb."""
        parser: argparse.ArgumentParser = subparsers.add_parser(
            "gate",
            help="Is this change slower? Base against head in one process",
            description="Judge head against base, case by case, both in one process on the same buffers. "
            "Exit codes: 0 pass, 1 slower than allowed, 2 a case fails or is wrong, 3 the machine cannot judge, "
            "4 wrong usage.",
        )
        parser.add_argument("--base", default="HEAD", metavar="REF", help="what to compare with (default: HEAD)")
        parser.add_argument(
            "--head", default=WORKING_TREE, metavar="REF", help="what is judged (default: ., the working tree)"
        )
        parser.add_argument(
            "--budget", type=_seconds, default=120.0, metavar="120s", help="time for all (default: 120s)"
        )
        parser.add_argument("--min-effect", type=_share, metavar="1%", help=f"smallest change that counts ({FILE})")
        parser.add_argument("--family", action="append", default=[], metavar="NAME", help="family or suite; may repeat")
        parser.add_argument("--case", action="append", default=[], metavar="M=8,K=4096", help="cases; may repeat")
        parser.add_argument("--variant", action="append", default=[], metavar="NAME", help="variants; may repeat")
        parser.add_argument("--l2", choices=[*CACHE_STATES, "both"], default="both", help="cache state (default: both)")
        parser.add_argument("--ignore-fingerprints", action="store_true", help="measure also what is proved unchanged")
        parser.add_argument("--require-gpu", action="store_true", help="exit status 3 where there is no GPU")
        parser.add_argument("--require-locked", action="store_true", help="exit status 3 unless the clocks are locked")
        parser.add_argument("--about", action="append", default=[], metavar="#123", help=f"for [[accept]] in {FILE}")
        parser.add_argument("--seed", type=int, help="of buffers, order and the noise meter (default: a new one)")
        parser.add_argument("--quick", "-q", action="store_true", help="short epochs, to find errors")
        parser.add_argument(
            "--json", type=Path, metavar="FILE", help="write the report there; docs/gate.md describes it"
        )
        parser.add_argument("--markdown", type=Path, metavar="FILE", help="append the report there as Markdown")
        parser.add_argument("--plain", action="store_true", help="the headline and one line a case, no table")
        parser.set_defaults(func=cls.run_from_args)
        return parser

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Judge and report."""
        started = time.monotonic()
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        # A runner that is cancelled sends SIGTERM: the report is still written, and the worker ended.
        former = signal.signal(signal.SIGTERM, _interrupt)
        try:
            with tempfile.TemporaryDirectory(prefix="lockstep-gate-") as folder:
                report = _judge(conf, args, Path(folder), started, console)
        except ThresholdsError as error:
            console.print(str(error), markup=False)
            return USAGE
        finally:
            signal.signal(signal.SIGTERM, former)
        _tell(report, args)
        return EXIT[report.state]


def _judge(conf: Any, args: argparse.Namespace, folder: Path, started: float, console: Console) -> Report:
    found = load_suites(Path(conf.benchmark_dir))
    picked = [suite for name in args.family or found for suite in pick_suites(found, name)]
    suites = {suite.name: suite for suite in picked}
    _refuse_unknown(picked, args)
    thresholds = read_thresholds(Path.cwd() / FILE)
    packages = tuple(getattr(conf, "lockstep", {}).get("packages", ("kernels",)))
    base = take_out(Path.cwd(), args.base, packages, folder / "base")
    head = take_out(Path.cwd(), args.head, packages, folder / "head")
    seed = args.seed if args.seed is not None else secrets.randbits(32)
    ring = Ring(base.root, head.root, packages, Path(conf.benchmark_dir).resolve(), tuple(suites), seed, args.quick)
    terms = Terms(
        thresholds,
        args.min_effect,
        deadline=started + args.budget,
        silence_s=min(SILENCE_S, float(conf.default_benchmark_timeout)),
        about=(*args.about, *commits_between(Path.cwd(), base, head)),
    )
    judge = Judge(ring, terms, lambda line: console.print(line, markup=False))
    trouble, interrupted = "", False
    machine: dict[str, str] = {}
    controls: Any = {}
    try:
        machine = {**judge.worker.host, "clock_state": judge.worker.clock_state}
        trouble = _unfit(machine, args)
        if not trouble:
            proof = Proof() if args.ignore_fingerprints else prove(base.root, head.root, packages)
            on_cpu = machine["device"] == "cpu"
            judge.judge(
                select(suites, lambda suite: _labels(suite, args), on_cpu=on_cpu, l2=args.l2, variants=args.variant),
                proof,
            )
            controls = judge.worker.controls
            trouble = judge.trouble()
    except WorkerDied as died:
        trouble = f"the worker does not start: {died.how}"
    except KeyboardInterrupt:
        interrupted = True
    finally:
        judge.close()
    return Report(
        base=base.label,
        head=head.label,
        machine=machine,
        cases=tuple(judge.verdicts.values()),
        meter=tuple(judge.metered),
        min_effect=args.min_effect if args.min_effect is not None else thresholds.default.min_effect,
        confidence=thresholds.default.confidence,
        budget_s=args.budget,
        wall_s=time.monotonic() - started,
        seed=seed,
        notes=tuple(judge.notes),
        trouble=trouble,
        interrupted=interrupted,
        controls=controls,
    )


def _tell(report: Report, args: argparse.Namespace) -> None:
    """Everywhere at once: terminal, files, and the workflow that this may run in."""
    written = args.json or args.markdown
    if args.json:
        args.json.write_text(report.to_json(), encoding="utf-8")
    if args.markdown:
        append_summary(report, args.markdown)
    show(report, Console(), plain=args.plain)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for command in annotate(report, prefix_of(Path.cwd())):
            print(command)
    if output := os.environ.get("GITHUB_OUTPUT"):
        write_outputs(report, Path(output), str(written.resolve()) if written else "")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and (not args.markdown or args.markdown.resolve() != Path(summary).resolve()):
        append_summary(report, Path(summary))


def _unfit(machine: dict[str, str], args: argparse.Namespace) -> str:
    if args.require_gpu and machine["device"] == "cpu":
        return "no GPU here, and one was asked for (--require-gpu)"
    if args.require_locked and not machine["clock_state"].startswith(("locked", "base")):
        return f"clocks are {machine['clock_state']}, and locked ones were asked for (lockstep clocks lock)"
    return ""


def _refuse_unknown(suites: list[Suite], args: argparse.Namespace) -> None:
    known = [name for suite in suites for name in suite.variants()]
    for variant in args.variant:
        if variant not in known:
            raise SuiteError(f"there is no variant {variant!r}{nearest(variant, dict.fromkeys(known))}")
    if args.case and not any(_labels(suite, args) for suite in suites):
        match_cases(suites[0], args.case[0])


def _labels(suite: Suite, args: argparse.Namespace) -> list[str] | None:
    """Labels of the suite's cases that were asked for; ``None`` for all."""
    if not args.case:
        return None
    wanted = [{part.strip() for part in text.split(",") if part.strip()} for text in args.case]
    return [case.label for case in suite.all_cases if any(axes <= set(case.label.split(",")) for axes in wanted)]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min)?", text.strip())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 120s or 5min")
    return float(match[1]) * (60.0 if match[2] in ("m", "min") else 1.0)


def _share(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%)?", text.strip())
    value = float(match[1]) / (100.0 if match[2] else 1.0) if match else -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write 1% or 0.01")
    return value


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
