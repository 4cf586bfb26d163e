"""``lockstep merge``: join the results of shards."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asv.commands import Command
from asv.console import log

from lockstep.commands.verb import Verb
from lockstep.fleet.merge import Merged, merge, shard_folders
from lockstep.processes.exit_status import BAD_NEWS, OK
from lockstep.record.mirror import Mirror, local


class Merge(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Join the results of shards.

    Join folders of results, of the shards of a fleet or of other runs, into the results. Merging again changes nothing;
    of two measurements of a series the last one counts. The folders are only read. Exit status: 1 if a file could not
    be merged, 3 if a file cannot be written (merge again), 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument(
            "folders",
            nargs="+",
            type=local,
            metavar="FOLDER",
            help="folder of results, or a folder of such folders; or its address, such as s3://bucket/shards",
        )
        parser.add_argument(
            "--into", metavar="FOLDER", help="folder or address of the results (default: results_dir of asv.conf.json)"
        )

    @classmethod
    def run_from_conf_args(cls, conf: Any, args: argparse.Namespace, **kwargs: Any) -> int:
        """Merge, report, and return the exit status."""
        folders = shard_folders(args.folders)
        into = args.into or conf.results_dir
        if "://" not in into:
            return report(merge(folders, Path(into)))
        mirror = Mirror.of(into)
        mirror.pull()
        merged = merge(folders, mirror.folder)
        mirror.push()
        return report(merged)


def report(merged: Merged) -> int:
    """Report a merge and return the exit status."""
    log.info(f"{merged.commits} result files changed, {merged.unchanged} had everything")
    for name in merged.unfinished:
        log.info(f"{name} is not finished: its shard goes on with --skip-existing")
    for problem in merged.problems:
        log.error(problem)
    return BAD_NEWS if merged.problems else OK
