"""Option ``--shards`` of ``lockstep run``: measure a history on several GPUs, and merge what they measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from asv.console import log
from asv.util import UserError
from rich.console import Console

from lockstep.commands.merge import report
from lockstep.fleet.launchers.launcher import Job, Launcher
from lockstep.fleet.launchers.processes import Processes
from lockstep.fleet.launchers.slurm import Slurm
from lockstep.fleet.merge import merge
from lockstep.fleet.progress import FleetProgress
from lockstep.fleet.shard import Shard, ShardError
from lockstep.gpu.nvml import NoGpu, all_gpus
from lockstep.processes.exit_status import BROKEN, OK, UsageError
from lockstep.processes.sigterm import sigterm_interrupts

#: Exit status of ``lockstep run`` if a benchmark failed: the commits were measured nevertheless.
_FAILED_SERIES = 2

#: The engines that start shards.
LAUNCHERS: Mapping[str, Callable[[], Launcher]] = {"processes": Processes, "slurm": Slurm}


def add_shards_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the option ``--shards``.

    Args:
        purpose: what the verb does with the shards.
    """
    parser.add_argument(
        "--shards",
        metavar="N",
        help=f"{purpose}: a number of GPUs, their UUIDs separated by commas, or `all` GPUs of this machine",
    )


def add_launcher_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--launcher``."""
    parser.add_argument(
        "--launcher",
        choices=LAUNCHERS,
        default="processes",
        help="what starts the shards of --shards: processes of this machine, or an array of Slurm jobs",
    )


def run_shards(conf: Any, args: argparse.Namespace) -> int:
    """Start this command for each shard, merge what they measured, and return the exit status."""
    results = Path(conf.results_dir)
    # A command with --shard measures that shard alone, whatever --shards says.
    jobs = [
        Job(shard, (*sys.argv[1:], "--skip-existing", "--shard", str(shard)), shard.folder(results))
        for shard in fleet_of(args.shards)
    ]
    log.info(f"Starting {len(jobs)} shards; their whole output is in {jobs[0].log.parent}/*.log")
    log.flush()
    return launch(LAUNCHERS[args.launcher](), jobs, results)


def launch(launcher: Launcher, jobs: Sequence[Job], results: Path) -> int:
    """Start jobs, show their progress, merge what they measured, and return the exit status."""
    statuses: dict[Job, int] = {}
    interrupted = False
    with sigterm_interrupts(), FleetProgress(Console(file=sys.stderr, highlight=False)) as progress:
        launcher.start(jobs)
        try:
            for news in launcher.watch():
                progress.show(news)
                if news.status is not None:
                    statuses[news.job] = news.status
        except KeyboardInterrupt:
            interrupted = True
            launcher.stop()
    status = report(merge([job.folder for job in jobs if job.folder.is_dir()], results))
    if interrupted:
        raise UserError("Interrupted.")
    for job in jobs:
        if statuses.get(job, BROKEN) not in (OK, _FAILED_SERIES):
            log.error(f"shard {job.shard.place} ended with status {statuses.get(job)}; {job.log} says why")
            status = BROKEN
    return status or max(statuses.values(), default=OK)


def fleet_of(text: str) -> tuple[Shard, ...]:
    """Return the shards of a fleet.

    Args:
        text: "all" GPUs of this machine, a number of them, or UUIDs separated by commas. A number larger than that of
            this machine's GPUs divides the cases all the same.

    Raises:
        UsageError: the text has another form, or this machine has no GPU.
    """
    try:
        here = [gpu.uuid for gpu in all_gpus()]
    except NoGpu as error:
        if text == "all":
            raise UsageError(f"{error}. Write a number instead: --shards N needs no GPU") from error
        here = []
    if text == "all" or (text.isdecimal() and 0 < int(text) <= len(here)):
        text = ",".join(here[: None if text == "all" else int(text)])
    try:
        return Shard.parse(f"1/{text}").others
    except ShardError as error:
        raise UsageError(f"--shards {text!r}: write a number, UUIDs separated by commas, or all") from error
