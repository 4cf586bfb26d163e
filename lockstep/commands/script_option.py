"""The option ``--script`` of ``gate``, ``measure`` and ``run``: a benchmark script in place of suites."""

from __future__ import annotations

import argparse
import secrets
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from asv.config import Config

from lockstep.commands.config import CONFIGS
from lockstep.commands.shared_options import add_repeatable
from lockstep.gate.model import is_release
from lockstep.processes.cache_folder import cache_folder
from lockstep.processes.exit_status import BROKEN, UsageError
from lockstep.processes.toolchain.release import Release, release_of, two_releases
from lockstep.record.console import line_console, wide_console
from lockstep.record.counted import counted
from lockstep.record.json_output import print_json
from lockstep.record.model import Record
from lockstep.record.printed_table import CPU_NOTE, reasons, records_table
from lockstep.scripts.client import Outcome, run_version
from lockstep.scripts.gate_script import Asked
from lockstep.scripts.plan import HEAD, Plan
from lockstep.scripts.project import Project
from lockstep.scripts.record_history import record_history
from lockstep.suite.commit_sources import WORKING_TREE
from lockstep.suite.definition import PROTOCOL_VERSION
from lockstep.suite.thresholds import FILE, read_thresholds
from lockstep.timing.tuners.choices import NAME as TUNED

#: Exit status if a call failed.
FAILED = 2

#: Seconds for measuring a script if no budget is given.
BUDGET_S = 120.0


def add_script_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--script`` and ``--package``; ``releases_of`` reads the releases."""
    parser.add_argument(
        "--script",
        metavar="'FILE ARGUMENTS'",
        help="measure the calls that a benchmark script times, in place of suites (docs/scripts.md)",
    )
    add_repeatable(
        parser,
        "--package",
        "NAME",
        "with --script: package under test; in gate also releases to compare, liger-kernel==0.6.1..0.6.2",
    )


def releases_of(args: argparse.Namespace, say: Callable[[str], None]) -> tuple[Release, Release] | None:
    """Return the releases that ``--package 'liger-kernel==0.6.1..0.6.2'`` of ``gate`` compares; ``None`` for none.

    They become base and head.

    Raises:
        UsageError: the text is not a range, or base and head are given as well.
        ToolchainError: pip cannot install one of them.
    """
    if is_release(args.base) and is_release(args.head):
        return release_of(args.base, say), release_of(args.head, say)
    ranges = [text for text in args.package if "=" in text or ".." in text]
    if not ranges:
        return None
    if len(args.package) > 1 or (args.base, args.head) != ("HEAD", WORKING_TREE):
        raise UsageError(f"--package {ranges[0]} names base and head: leave out --base, --head and another --package")
    base, head = two_releases(ranges[0], say)
    args.base, args.head, args.package = base.name, head.name, []
    return base, head


def project_of(args: argparse.Namespace, packages: tuple[str, ...] = ()) -> tuple[Project, Plan]:
    """Return the project of ``--script``, and a plan with the settings that all verbs have.

    Args:
        packages: packages of releases, which are under test in place of those of the repository.

    Raises:
        UsageError: there is no such script.
    """
    words = shlex.split(args.script)
    if not words:
        raise UsageError("--script needs a file: --script 'benchmarks/bench_rope.py 4096'")
    file = Path(words[0])
    project = Project.of_releases(file, packages) if packages else Project.of(file, tuple(args.package))
    return project, Plan(
        suite=project.file.stem,
        sides={},
        packages=project.packages,
        local={name: str(folder) for name, folder in project.local.items()},
        arguments=tuple(words[1:]),
        budget_s=BUDGET_S,
        quick=bool(args.quick),
        seed=secrets.randbits(32) if getattr(args, "seed", None) is None else args.seed,
        version=f"{PROTOCOL_VERSION}.1",
        tuned=str(cache_folder() / TUNED),
    )


def run_script(args: argparse.Namespace) -> int:
    """Measure a script at the commits of a range, and store asv results; print where they are."""
    if args.quick or args.dry_run:
        raise UsageError("run --script stores what it measures: for a trial, write lockstep measure --quick --script …")
    project, plan = project_of(args)
    settings = next((name for name in [args.config, *CONFIGS] if name and Path(name).is_file()), None)
    folder = Path(Config.load(settings).results_dir if settings else "results").resolve()
    say = line_console(stderr=True).print
    recorded = record_history(project, plan, args.range or "HEAD^!", folder, say)
    if not recorded:
        say("no commit was recorded")
        return BROKEN
    shown = "`lockstep publish` and `lockstep dashboard` show them"
    if not settings:
        shown = "`lockstep dashboard` shows them; `lockstep publish` needs an asv.conf.json"
    say(f"{counted(recorded, 'commit')} recorded in {folder}; {shown}")
    return 0


def asked_of(args: argparse.Namespace, releases: Sequence[Release] = ()) -> Asked:
    """Return what ``gate --script`` asks for; base and head may be releases.

    Raises:
        UsageError: there is no such script, or an option is of suites.
    """
    for name in ("family", "costs", "retune", "lock", "about"):
        if getattr(args, name):
            raise UsageError(f"--{name} is of suites: leave it out with --script")
    packages = tuple(sorted({name for release in releases for name in release.packages}))
    project, plan = project_of(args, packages)
    apart = not all(release.pure for release in releases)
    default = read_thresholds(Path.cwd() / FILE).default
    plan = replace(
        plan,
        budget_s=args.budget,
        min_effect=args.min_effect or default.min_effect,
        confidence=default.confidence,
        measure_all=args.ignore_fingerprints,
        cases=tuple(args.case),
        variants=tuple(args.variant),
        scratch=tuple(args.scratch),
    )
    return Asked(project, args.base, args.head, plan, args.require_gpu, args.require_locked, apart)


def measure_script(args: argparse.Namespace) -> int:
    """Measure the calls of a script with the working tree's packages; print a table, or records as JSON."""
    project, plan = project_of(args)
    plan = replace(plan, cases=tuple(args.case), variants=tuple(args.variants or ()))
    console, errors = wide_console(), line_console(stderr=True)
    records: list[Record] = []
    outcome = Outcome()
    for number in run_version(project, WORKING_TREE, plan, errors.print, outcome):
        records.append(outcome.records[number])
        if args.json:
            print_json(records[-1])
            continue
        names, cases = ([call[part] for call in outcome.calls] for part in (1, 0))
        first = len(records) == 1
        console.print(records_table(records[-1:], plan.suite, names=names, cases=cases, head=first))
    for line in [*reasons(records), *outcome.remarks(plan, project.file)]:
        errors.print(line)
    missing = len({*plan.selected(outcome.calls)}.difference(outcome.refused.get(HEAD, {}))) - len(records)
    if missing:
        errors.print(
            f"the budget of {plan.budget_s:g} s left {missing} calls out: choose some by --case and --variants"
        )
    if outcome.machine.get("device") == "cpu" and records and not args.json:
        console.print(CPU_NOTE)
    if any(record.state == "failed" for record in records):
        return FAILED
    return 0 if records else BROKEN
