"""``lockstep run``: asv's ``run``, with the clock state in the machine's name."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asv import util
from asv.commands.run import Run as AsvRun
from asv.console import log
from asv.machine import Machine, MachineCollection

from lockstep.asv.commit_range import commits_of
from lockstep.asv.environment import LockstepEnvironment, RunOptions
from lockstep.asv.undiscovered_benchmarks import keep, undiscovered
from lockstep.asv.whole_files import whole_files
from lockstep.commands.script_option import add_script_option, run_script
from lockstep.commands.shard_option import ShardRun, add_shard_option
from lockstep.commands.shards_option import add_launcher_option, add_shards_option, run_shards
from lockstep.commands.shared_options import add_costs_option, add_retune_option, requested_costs
from lockstep.processes.exit_status import Unusable, UsageError
from lockstep.processes.only_one import only_one
from lockstep.processes.sigterm import sigterm_interrupts
from lockstep.record.file import newest_harness
from lockstep.record.provenance import ask_host
from lockstep.suite.changed_text import changed_texts
from lockstep.suite.definition import Suite
from lockstep.suite.discovery import Workspace
from lockstep.suite.selection import nearest

#: How often the numbers of a timed commit are repeated, unless ``--repeats`` says otherwise.
REPEATS = 20


class Run(AsvRun):  # type: ignore[misc]  # asv has no types
    """asv's ``run`` for Lockstep's suites. The verb replaces asv's verb because both have the same name."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add asv's arguments of ``run`` and ``--costs``, and describe Lockstep's meaning of ``--quick``."""
        parser: argparse.ArgumentParser = super().setup_arguments(subparsers)
        for action in parser._actions:
            if "--quick" in action.option_strings:
                action.help = "Measure as briefly as possible, to find errors; store nothing (implies --dry-run)."
        add_costs_option(parser, "beside those that its suite states")
        add_retune_option(parser)
        add_shard_option(parser)
        add_shards_option(parser, "start a process for each shard, and merge what they measured")
        add_launcher_option(parser)
        parser.add_argument(
            "--repeats",
            type=int,
            default=REPEATS,
            metavar="N",
            help="copy the numbers of a timed commit to at most N commits that give the GPU the same work "
            "(default: %(default)s); with 0 each commit is timed",
        )
        add_script_option(parser)
        return parser

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> Any:
        """Record a script, which needs no asv.conf.json, or suites."""
        if not args.script:
            return super().run_from_args(args)
        if args.shard or args.shards:
            raise UsageError("--shard and --shards divide the cases of suites; a script is measured as a whole")
        with sigterm_interrupts():
            return run_script(args)

    @classmethod
    @whole_files()
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace, **kwargs: Any) -> int | None:
        """Run asv with the clock state in the machine's name.

        asv saves a commit once all of it is measured. An interruption leaves the provenance file with the records.
        """
        if conf.environment_type != LockstepEnvironment.tool_name or args.env_spec:
            for option in ("costs", "shard", "shards"):
                if getattr(args, option) is not None:
                    raise UsageError(f'--{option} needs "environment_type": "lockstep" in asv.conf.json')
            code: int | None = super().run_from_conf_args(conf, args, **kwargs)
            return code
        if args.repeats < 0:
            raise UsageError(f"--repeats {args.repeats}: must be 0 or more")
        # Suites are loaded first, because for a broken suite asv would print the traceback of its discovery.
        suites, results = Workspace.of(conf).suites, Path(conf.results_dir)
        if args.shards and not args.shard:
            return run_shards(conf, args)
        named = args.range
        args.range = commits_of(conf, named, pull=not args.no_pull, period=args.date_period, steps=args.steps)
        args.date_period = args.steps = None
        resume = args.skip_existing or args.skip_existing_successful
        shard = ShardRun(conf, args, list(suites.values())) if args.shard else None
        if named == "NEW" and not args.range:
            log.info("No commit is new: every commit on the branches of asv.conf.json has a result or precedes one")
            return None
        log.info(f"Measuring {named or 'the newest commits'} by {len(suites)} suites; asking the machine first")
        host = ask_host()
        base = args.machine or Machine.get_unique_machine_name()
        options = RunOptions(
            machine=f"{base}-{host.clock_slug}",
            clock_state=host.clock_label,
            quick=args.quick,
            resume=resume,
            save=not (args.quick or args.dry_run),
            commits=None if resume or args.skip_existing_commits else len(args.range),
            costs=requested_costs(args.costs, ()),
            retune=args.retune,
            tuned=shard.tuned if shard else None,
            host=host.facts if host.facts.get("device") == "cuda" else None,
            repeats=args.repeats,
            range=args.range,
        )
        conf.lockstep_run = options
        args.machine = options.machine
        # A quick measurement only finds errors and does not belong in a history.
        args.dry_run = args.dry_run or args.quick
        if args.quick:
            log.info("--quick: each case is measured as briefly as possible, nothing is stored")
        if shard:
            shard.begin(host, options.machine)
            results, kwargs["_machine_file"] = shard.folder, shard.machine_file
        # asv overwrites its table of benchmarks with the benchmarks that it discovers.
        undiscovered_files = undiscovered(results)
        for warning in changed_texts(suites.values(), newest_harness(results, options.machine)):
            log.warning(warning)
        machine = _machine(options.machine, host.facts)
        MachineCollection.save(options.machine, machine, kwargs.get("_machine_file"))
        (own := results / options.machine).mkdir(parents=True, exist_ok=True)
        try:
            with sigterm_interrupts(), only_one(own, wait=False) as alone:
                if not alone:  # both would measure the same commits, and disturb each other's times
                    raise Unusable(f"another run measures on this machine, and stores its results in {own}: let it end")
                with whole_files(written=options.save):  # asv writes its tables in a dry run too
                    code = super().run_from_conf_args(conf, args, _returns=options.returns, **kwargs)
        except (util.UserError, KeyboardInterrupt) as error:
            # asv converts Ctrl-C to its own error only while it waits for a benchmark, not between two benchmarks.
            if options.save and (isinstance(error, KeyboardInterrupt) or str(error) == "Interrupted."):
                log.info("Interrupted: the records are kept; the same command with --skip-existing continues")
            if isinstance(error, KeyboardInterrupt):
                raise util.UserError("Interrupted.") from error
            raise
        finally:
            for environment in options.environments:
                environment.close()
            keep(results, undiscovered_files)
        discovered = any(environment.discovered for environment in options.environments)
        if shard and discovered and code == 1 and "benchmarks" not in options.returns:
            log.info(f"No selected case belongs to shard {shard.shard.place}")
            return 0
        if code == 1 and args.bench and "benchmarks" not in options.returns:
            _explain_selection(suites, args.bench)
        return code


def _machine(name: str, facts: dict[str, str]) -> dict[str, str]:
    """Return asv's facts of the machine. The toolchain is not among them: a changed fact would start a new series."""
    described: dict[str, str] = Machine.get_defaults()
    return {**described, "machine": name, "os": platform.system(), "gpu": facts.get("gpu", "")}


def _explain_selection(suites: Mapping[str, Suite], patterns: list[str]) -> None:
    """Report that ``--bench`` matches no series, and list the names that the option can select."""
    for pattern in patterns if isinstance(patterns, list) else [patterns]:
        log.error(f"--bench {pattern!r} matches no series{nearest(pattern, suites)}")
    for suite in suites.values():
        log.info(f"{suite.name}: {', '.join(suite.variants())}")
