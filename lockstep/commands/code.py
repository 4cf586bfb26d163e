"""``lockstep code show``, ``diff BASE HEAD``, ``history RANGE`` and ``doctor``: code of the kernels, without a GPU.

Exit codes: 0 done, 1 something differs (``--exit-code``), is worse (``--worse``) or stops a trace (``doctor``), 3 no
verdict, 4 wrong usage. There is no verdict if neither tree has a family, a tree's process does not start, there is no
code to show, or no case is traced. With ``--exit-code`` there is also no verdict if some case is not traced and no
difference is found; with ``--worse``, if quantities known in base are unknown in head.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from asv.commands import Command, common_args

from lockstep.commands.cli import expect_folder
from lockstep.commands.code_diff import absent_families, add_diff, run_diff
from lockstep.commands.code_history import Packages, add_history, run_history
from lockstep.commands.shared_options import add_repeatable, add_toolchain, say
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BAD_NEWS, OK, Unusable, UsageError
from lockstep.processes.toolchain import toolchain_of
from lockstep.record.console import wide_console
from lockstep.record.json_output import print_json
from lockstep.suite.definition import Suite

if TYPE_CHECKING:
    from lockstep.machine_code.model import CaseCode, CaseKey
    from lockstep.machine_code.targets import Target
    from lockstep.suite.commit_sources import Tree


#: Default targets, if neither asv.conf.json ({"lockstep": {"targets": […]}}) nor ``--target`` names any.
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120")


class Code(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Compile kernels without a GPU; show or compare machine code and launches.

    Compile the kernels, on a machine with or without a GPU, and show or compare the result.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        actions = parser.add_subparsers(dest="action", required=True)

        show = actions.add_parser("show", help="Show each kernel's registers, spills, shared memory, instructions …")
        show.add_argument("ref", nargs="?", default=".", help="a commit, or . for the working tree (default)")
        add_repeatable(show, "--variant", "NAME", "only this variant")
        add_repeatable(show, "--case", "M=8,K=4096", "cases with these axis values")

        add_toolchain(show)
        doctor = actions.add_parser("doctor", help="List what stops the traces: question, line, cases, what to do")
        doctor.add_argument("ref", nargs="?", default=".", help="a commit, or . for the working tree (default)")
        add_toolchain(doctor)
        diff = add_diff(actions)
        for action in (show, diff):
            action.add_argument("--json", action="store_true", help="print JSON")

        for action in (show, doctor, diff, add_history(actions)):
            add_repeatable(action, "--family", "NAME", "only this family")
            action.add_argument(
                "--target",
                action="append",
                default=[],
                metavar="sm_90",
                help="target, optionally with its number of multiprocessors (sm_90:114); may repeat (default: "
                f"lockstep.targets in asv.conf.json, else {', '.join(TARGETS)})",
            )
            # asv accepts its own options (-v, --config) after the verb; accept them after the action too.
            common_args.add_global_arguments(action)

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace) -> int:
        """Run the action, and return its exit status."""
        from lockstep.machine_code.targets import Target, TargetError
        from lockstep.suite.discovery import Workspace

        settings: Mapping[str, Any] = getattr(conf, "lockstep", {})
        try:  # before loading the suites, whose imports take seconds
            targets = [Target.parse(text) for text in args.target or settings.get("targets", TARGETS)]
        except TargetError as error:
            raise UsageError(str(error) if args.target else f'asv.conf.json: "lockstep.targets": {error}') from error
        expect_folder(getattr(args, "markdown", None))
        workspace = Workspace.of(conf)
        if not workspace.suites:
            raise UsageError(f"{conf.benchmark_dir} (benchmark_dir in asv.conf.json) holds no suite")
        suites = workspace.pick(args.family)
        packages: Packages = workspace.folder, workspace.packages
        if args.action == "history":
            return run_history(conf, args, packages, suites, targets)
        run_action = {"show": _show, "doctor": _doctor, "diff": run_diff}[args.action]
        return run_action(args, packages, suites, targets)


@contextmanager
def _at(args: argparse.Namespace, packages: Packages, suites: Sequence[Suite]) -> Iterator[Tree]:
    """Yield the tree of a commit with the chosen toolchain.

    Raises:
        Unusable: the tree has none of a suite's variants.
    """
    from lockstep.suite.commit_sources import sources

    with sources(args.ref, *packages) as tree:
        if absent := absent_families(suites, tree.root):
            raise Unusable(f"{args.ref} has no family {absent}")
        yield replace(tree, toolchain=toolchain_of(args.toolchain, say=say))


def _show(args: argparse.Namespace, packages: Packages, suites: Sequence[Suite], targets: Sequence[Target]) -> int:
    from lockstep.machine_code.compiled_tree import codes_of
    from lockstep.machine_code.differences.report import code_table, host_lines, unknown_lines
    from lockstep.suite.selection import expect_variants, match_labels

    expect_variants(args.variant, suites)
    labels = match_labels(suites, args.case)
    # Only these cases are traced: all cases of a large suite take half a minute.
    cases = {name: chosen or [] for name, chosen in labels.items()} if args.case else None
    out = wide_console()
    with _at(args, packages, suites) as tree:
        for target in targets:
            codes = {
                key: code
                for key, code in codes_of(tree, suites, target, cases=cases, say=say).items()
                if (not args.variant or key.variant in args.variant) and (cases is None or key.case in cases[key.suite])
            }
            if not codes:
                raise Unusable(f"{args.ref} has no code for these variants and cases")
            if args.json:
                for key, code in codes.items():
                    print_json(_row(target, key, code))
                continue
            out.print(code_table(codes, f"{tree.label} for {target.name}"))
            for line in (*(host_lines(codes) if len(codes) <= 2 else ()), *unknown_lines(codes)):
                out.print(line, soft_wrap=True)
            if all(code.absent for code in codes.values()):
                raise Unusable(f"{args.ref} has no code for these variants and cases: see above")
    return OK


def _doctor(args: argparse.Namespace, packages: Packages, suites: Sequence[Suite], targets: Sequence[Target]) -> int:
    from lockstep.machine_code.compiled_tree import Reader
    from lockstep.machine_code.differences.report import obstacle_lines

    stopped = False
    with _at(args, packages, suites) as tree:
        for target in targets:
            with Reader(tree, suites, target, say=say) as reader:
                codes = reader.traced()
            print("\n".join(obstacle_lines(codes, f"{tree.label} for {target.name}")), flush=True)
            stopped |= any(code.unknown for code in codes.values())
    return BAD_NEWS if stopped else OK


def _row(target: Target, key: CaseKey, code: CaseCode) -> dict[str, Any]:
    from lockstep.machine_code.exact_quantities import exact_quantities, quantity_ranges

    fingerprints = {"fingerprint": code.fingerprint, "host_fingerprint": code.host_fingerprint}
    known = {**fingerprints, "quantities": exact_quantities(code), "ranges": quantity_ranges(code)}
    return {"target": target.name, **key._asdict(), **known, **asdict(code)}
