"""``lockstep code diff``: compare two commits with the installed compiler, or one commit with two compilers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.commands.code_history import Packages
from lockstep.commands.shared_options import FORMS, say
from lockstep.processes.exit_status import BAD_NEWS, BROKEN, OK, Unusable, UsageError
from lockstep.processes.toolchain import INSTALLED, toolchain_of
from lockstep.processes.toolchain.releases import releases
from lockstep.record.console import wide_console
from lockstep.record.json_output import print_json
from lockstep.suite.definition import Suite

if TYPE_CHECKING:
    from lockstep.machine_code.differences.compare import Comparison
    from lockstep.machine_code.targets import Target


def add_diff(actions: Any) -> argparse.ArgumentParser:
    """Add the action ``diff`` and its arguments to ``lockstep code``."""
    diff: argparse.ArgumentParser = actions.add_parser(
        "diff",
        help="Compare two commits, a commit and the working tree, or two toolchains",
        description="Compare the machine code of two commits, or with --toolchain that of one commit (default: the "
        "working tree) under two versions of Triton or torch.",
    )
    diff.add_argument("base", metavar="BASE", nargs="?", help="the base commit (default: HEAD)")
    diff.add_argument("head", metavar="HEAD", nargs="?", help="commit, or . for the working tree (default)")
    diff.add_argument(
        "--toolchain",
        nargs=2,
        metavar=("BASE", "HEAD"),
        help=f"compile BASE, or the working tree, under two toolchains; each is {FORMS}",
    )
    diff.add_argument(
        "--releases",
        metavar="triton==3.5.1..3.7.0",
        help="compile BASE, or the working tree, under each release of this range, and compare neighbours",
    )
    diff.add_argument("--exit-code", action="store_true", help="exit with 1 if something differs, as git diff does")
    diff.add_argument("--worse", action="store_true", help="exit with 1 if an exact quantity is worse in HEAD")
    diff.add_argument("--markdown", type=Path, metavar="FILE", help="append the differences to FILE as Markdown")
    return diff


@dataclass(frozen=True)
class _Pair:
    """What is compared: two commits, or two toolchains at one commit.

    Attributes:
        base, head: commits, or "." for the working tree.
        toolchains: the toolchains that compile base and head.
        at: the commit that two toolchains compile; "" if two commits are compared.
    """

    base: str
    head: str
    toolchains: tuple[str, str] = (INSTALLED.name, INSTALLED.name)
    at: str = ""

    @classmethod
    def of(cls, args: argparse.Namespace, toolchains: Sequence[str] | None) -> _Pair:
        """Return what the command line names, with these toolchains in place of the installed one."""
        if not toolchains:
            return cls(args.base or "HEAD", args.head or ".")
        base, head = toolchains
        if args.head is None:
            return cls(args.base or ".", args.base or ".", (base, head), at=args.base or ".")
        if base != head:
            raise UsageError(f"two toolchains are compared at one commit: leave out {args.base} or {args.head}")
        return cls(args.base, args.head, (base, head))

    @property
    def names(self) -> tuple[str, str]:
        """Return how the two are called."""
        return self.toolchains if self.at else (self.base, self.head)

    @property
    def titles(self) -> tuple[str, str]:
        """Return how the two are called in lines of text, with the commit of two toolchains."""
        base, head = self.names
        return base, f"{head}, both at {self.at}" if self.at else head


def run_diff(args: argparse.Namespace, packages: Packages, suites: Sequence[Suite], targets: Sequence[Target]) -> int:
    """Compare two commits, or neighbouring toolchains, for each target, report, and return the exit status.

    Raises:
        RefError, TracingFailed, UnknownToolchain, ToolchainError: a commit or a toolchain cannot be used.
    """
    from lockstep.machine_code.differences.report import in_short

    if not args.releases:
        return _run_pair(_Pair.of(args, args.toolchain), args, packages, suites, targets)[0]
    if args.toolchain or args.head is not None:
        raise UsageError("--releases compares toolchains at one commit: leave out --toolchain and HEAD")
    statuses, lines = [], []
    for pair in pairwise(releases(args.releases)):
        status, comparisons = _run_pair(_Pair.of(args, pair), args, packages, suites, targets)
        statuses.append(status)
        lines += [f"{pair[1]}, {in_short(comparison)}" for comparison in comparisons]
    if not args.json:
        print("\n".join(["", "In short:", *lines]))
    return next((status for status in (BAD_NEWS, BROKEN) if status in statuses), OK)


def _run_pair(
    pair: _Pair, args: argparse.Namespace, packages: Packages, suites: Sequence[Suite], targets: Sequence[Target]
) -> tuple[int, Sequence[Comparison]]:
    """Compare two commits or two toolchains; return the exit status and a comparison for each target."""
    from lockstep.machine_code.differences.compare import compare
    from lockstep.machine_code.differences.report import diff_lines
    from lockstep.suite.commit_sources import sources

    with sources(pair.base, *packages) as base, sources(pair.head, *packages) as head:
        base, head = (
            replace(tree, toolchain=toolchain_of(text, say=say))
            for tree, text in zip((base, base if pair.at else head), pair.toolchains, strict=True)
        )
        if absent := absent_families(suites, base.root, head.root):
            lacking = f"{base.name} lacks" if pair.at else f"neither {base.name} nor {head.name} has"
            raise Unusable(f"nothing to compare: {lacking} the family {absent}")
        out = wide_console()
        comparisons = []
        for target in targets:
            comparison = compare(base, head, suites, target, say=say)
            comparisons.append(comparison)
            if not args.json:
                # Print each target when it is compared: tracing one target may take minutes.
                for line in diff_lines(comparison, *pair.titles):
                    out.print(line, soft_wrap=True)
                out.file.flush()
    if args.json:
        rows = [_comparison_row(comparison) for comparison in comparisons]
        at = {"commit": pair.at} if pair.at else {}
        print_json({"base": pair.names[0], "head": pair.names[1], **at, "targets": rows}, indent=2)
    _summarize(comparisons, args.markdown, pair.titles)
    return _status(comparisons, base.label, args), comparisons


def _status(comparisons: Sequence[Comparison], base: str, args: argparse.Namespace) -> int:
    """Return the exit status of a comparison, and say why there is no verdict."""
    kinds = {change.kind for comparison in comparisons for change in comparison.changes}
    known = any(comparison.same_sources or set(comparison.counts) - {"unknown"} for comparison in comparisons)
    if kinds and not known:
        whole = "nothing was compared: no case was" if kinds == {"unknown"} else "no verdict: no case was wholly"
        return fail(BROKEN, f"{whole} traced, for the reasons above; `lockstep code doctor` lists all")
    if args.worse and any(change.worse for comparison in comparisons for change in comparison.quantities):
        return BAD_NEWS
    if args.worse and (lost := [key for comparison in comparisons for key in comparison.lost]):
        first = " ".join(lost[0])
        return fail(BROKEN, f"no verdict: only {base} has exact quantities of {len(lost)} cases, first {first}")
    if not args.exit_code or not kinds:
        return OK
    if kinds - {"unknown"}:
        return BAD_NEWS
    return fail(BROKEN, "no difference was found in what was traced; some cases were not traced, for the reasons above")


def _summarize(comparisons: Sequence[Comparison], markdown: Path | None, titles: tuple[str, str]) -> None:
    """Append Markdown to the file of ``--markdown``, and to the summary of the workflow that runs this command."""
    from lockstep.machine_code.differences.report import to_markdown

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    for path in dict.fromkeys(path.resolve() for path in (markdown, summary and Path(summary)) if path):
        with path.open("a", encoding="utf-8") as file:
            file.write(to_markdown(comparisons, *titles))


def _comparison_row(comparison: Comparison) -> dict[str, Any]:
    from lockstep.machine_code.differences.report import compiler_lines

    row = {
        "target": comparison.target.name,
        "same_sources": sorted(comparison.same_sources),
        "cases": dict(comparison.counts),
        "changes": [
            {**asdict(change), "verdict": change.verdict, "cases": [key._asdict() for key in change.cases]}
            for change in comparison.changes
        ],
        "quantities": [
            {**asdict(change), "worse": change.worse, "cases": [key._asdict() for key in change.cases]}
            for change in comparison.quantities
        ],
    }
    if comparison.compilers is not None:
        base, head = map(asdict, comparison.compilers)
        row["compilers"] = {"base": base, "head": head, "differences": list(compiler_lines(comparison))}
    return row


def absent_families(suites: Sequence[Suite], *roots: Path) -> str:
    """Return the names of suites whose family is in none of these trees, separated by commas; "" if there is none."""
    from lockstep.suite.discovery import has_family

    return ", ".join(suite.name for suite in suites if not any(has_family(root, suite) for root in roots))


def fail(code: int, message: str) -> int:
    """Print why the command fails, and return its exit status."""
    print(message, file=sys.stderr)
    return code
