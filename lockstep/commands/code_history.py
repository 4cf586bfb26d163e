"""``lockstep code history RANGE``: exact quantities of every commit that touches the packages, without a GPU."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.commands.shared_options import add_toolchain, say
from lockstep.processes.exit_status import BROKEN, OK
from lockstep.processes.toolchain import toolchain_of
from lockstep.suite.definition import Suite

if TYPE_CHECKING:
    from lockstep.machine_code.targets import Target

#: Folder of the packages under test, names of these packages, and names of further packages that they may call.
Packages = tuple[Path, Sequence[str]]


def add_history(actions: Any) -> argparse.ArgumentParser:
    """Add the action ``history`` and its arguments to ``lockstep code``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "history",
        help="Store launches, device memory, registers, spills … of every commit of a range as asv results",
        description="Trace and compile every commit of a range that touches the packages under test, and store the "
        "exact quantities as results of the machine sm_90-compiled. With --toolchain the machine is "
        "sm_90-compiled@triton-3.6.0. A commit that has results is skipped.",
    )
    parser.add_argument("range", metavar="RANGE", help="commits, as for git rev-list: main~50..main, or main for all")
    parser.add_argument("--again", action="store_true", help="also compile commits that already have results")
    parser.add_argument("--most", type=int, metavar="N", help="compile N commits at most, spread evenly over the range")
    add_toolchain(parser)
    return parser


def run_history(
    conf: Any, args: argparse.Namespace, packages: Packages, suites: Sequence[Suite], targets: Sequence[Target]
) -> int:
    """Store the exact quantities of each commit for each target as asv results, and return the exit status.

    Raises:
        RefError: git does not know the range.
        UnknownToolchain, ToolchainError: the toolchain cannot be used.
    """
    from lockstep.asv.exact_results import (
        Written,
        chosen_configurations,
        followed_cases,
        machine_name,
        result_file,
        write_exact,
    )
    from lockstep.machine_code.compiled_tree import Reader
    from lockstep.machine_code.differences.report import used_by
    from lockstep.machine_code.worker_session import TracingFailed
    from lockstep.record.provenance import harness_commit
    from lockstep.suite.commit_sources import commits_in, sources

    folder = Path(conf.results_dir)
    commits = list(_spread(commits_in(packages[0], args.range, packages[1]), args.most))
    harness = harness_commit(Path(conf.benchmark_dir), folder)
    cases = {suite.name: followed_cases(suite) for suite in suites}
    chosen = toolchain_of(args.toolchain, say=say)
    failed = written = 0
    for number, (commit, date) in enumerate(commits, 1):
        missing = [
            target for target in targets if args.again or not result_file(folder, target, chosen, commit).exists()
        ]
        if not missing:
            continue
        with sources(commit, *packages) as at_commit:
            tree = replace(at_commit, toolchain=chosen)
            for target in missing:
                started = time.monotonic()
                try:
                    with Reader(tree, suites, target, cases=cases) as reader:
                        codes, compiler = reader.compiled(), reader.described()
                    held = chosen_configurations(folder, commit, target)
                    done = write_exact(folder, target, commit, date, harness, suites, codes, chosen, compiler, held)
                    result = f"{done.numbers} numbers" if done.numbers else "has none of the families"
                    result += f", {done.ranges} of them ranges over the configurations of tuned kernels" * bool(
                        done.ranges
                    )
                except TracingFailed as error:
                    failed, result, done = failed + 1, f"cannot be traced: {error}", Written(0, 0, {})
                written += bool(done.numbers)
                spent = time.monotonic() - started
                place = f"{number} of {len(commits)}"
                say(f"{machine_name(target, chosen)} {commit[:8]} ({place}): {result}, {spent:.1f} s")
                for reason, keys in done.reasons.items():
                    say(f"  no number: {reason} ({used_by(keys)})")
    print(f"{len(commits)} commits touch {', '.join(packages[1])}; {written} files written to {folder}")
    return BROKEN if failed else OK


def _spread(commits: Sequence[tuple[str, int]], limit: int | None) -> Iterator[tuple[str, int]]:
    """Yield at most ``limit`` commits, evenly spread, including the first and the last."""
    if limit is None or limit >= len(commits):
        yield from commits
    elif limit > 0:
        last = max(limit - 1, 1)
        yield from (commits[place * (len(commits) - 1) // last] for place in range(limit))
