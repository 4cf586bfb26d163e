"""``lockstep import``: take the results of other benchmark tools into the results folder."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from asv.commands import Command
from asv.console import log

from lockstep.commands.merge import report
from lockstep.commands.results_options import add_folder_options, repository, results_folder
from lockstep.commands.verb import Verb
from lockstep.fleet.merge import merge
from lockstep.importing.formats import FORMATS
from lockstep.importing.model import ForeignRun
from lockstep.importing.read_file import UnreadableFile, read_file
from lockstep.importing.write_asv import write_run
from lockstep.processes.exit_status import BAD_NEWS, UsageError
from lockstep.processes.git import Git, GitError


class Import(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Import results of pytest-benchmark, nvbench and other tools.

    Convert the result files of other tools (see --format) to asv's, and merge them into the results folder. Changes,
    alerts and the dashboard then follow them. Importing a file again changes nothing. Exit status: 1 if a file could
    not be read or merged, 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        add_folder_options(parser)
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="result file of another tool")
        parser.add_argument("--format", choices=FORMATS, default="", help="format (default: recognised by the content)")
        parser.add_argument(
            "--commit", help="commit that was measured, for files that do not name it (default: HEAD of the repository)"
        )
        parser.add_argument("--machine", help="name of the machine, instead of the name in the file")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Read all files, merge those that can be read, and return the exit status."""
        folder = results_folder(args)
        folder.mkdir(parents=True, exist_ok=True)
        git = Git(repository(args))
        unreadable = False
        with tempfile.TemporaryDirectory(prefix="lockstep-import-") as temporary:
            written = Counter[tuple[str, str, str]]()
            for path in args.files:
                try:
                    tool, runs = read_file(path, args.format)
                except UnreadableFile as error:
                    log.error(str(error))
                    unreadable = True
                    continue
                numbers = sum(len(run.numbers) for run in runs)
                if not numbers:
                    log.error(f"{path}: {tool}, but the file holds no number that can be imported")
                    unreadable = True
                    continue
                log.info(f"{path}: {tool}, {numbers} numbers of {len(runs)} runs")
                for run in _placed(runs, args.commit, args.machine, git, path):
                    # Runs of one machine and commit have the same file, so they need folders of their own. A folder
                    # for every run would make the merge look for each file in each of them.
                    file = tool, run.machine, run.commit[:8]  # as asv names it
                    write_run(Path(temporary, str(written[file])), run, tool)
                    written[file] += 1
            status = report(merge(sorted(Path(temporary).iterdir()), folder))
        return BAD_NEWS if unreadable else status


def _placed(
    runs: Iterable[ForeignRun], commit: str | None, machine: str | None, git: Git, path: Path
) -> list[ForeignRun]:
    """Return the runs with a machine, a full commit and its date, and a time of measurement (of the file, if need be).

    Raises:
        UsageError: a run has no machine, or git does not know the commit and the file does not state its date.
    """
    placed = []
    for run in runs:
        wanted = commit or run.commit or "HEAD"
        try:
            full, seconds = git.lines("log", "-1", "--format=%H %ct", "--end-of-options", wanted, "--")[0].split()
        except (GitError, IndexError) as error:
            if commit or not run.commit or not run.date:
                advice = "--repo names the repository" if commit else "name it with --commit"
                raise UsageError(f"{path}: the repository {git.folder} has no commit {wanted}: {advice}") from error
            full, seconds = run.commit, str(run.date // 1000)
        name = machine or run.machine
        if not name:
            raise UsageError(f"{path} does not name the machine: name it with --machine")
        name = "".join(letter if letter.isalnum() or letter in "-_.@" else "-" for letter in name).strip("-.")
        measured_at = run.measured_at or int(path.stat().st_mtime * 1000)
        placed.append(replace(run, commit=full, date=int(seconds) * 1000, machine=name, measured_at=measured_at))
    return placed
