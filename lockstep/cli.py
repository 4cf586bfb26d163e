"""The ``lockstep`` command: everything asv can do, and the verbs that packages register."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import asv
import asv.commands
from asv import util
from asv.commands.run import Run as AsvRun
from asv.console import log

from lockstep.record import RecordError
from lockstep.suite import SuiteError
from lockstep.thresholds import ThresholdsError

#: Exit status where a file or folder cannot be read or written; of a wrong command line or a broken suite.
BROKEN, USAGE = 3, 4

#: asv's configuration, where ``--config`` names none.
CONFIGS = ("asv.conf.json", "asv.conf.jsonc")


class UsageError(ValueError):
    """What was asked for cannot be done; the message says what to write instead."""


def expect_folder(file: Path | None) -> None:
    """Raise before a verb begins what takes minutes, rather than once it wants to write its file.

    Raises:
        UsageError: there is no folder for it.
    """
    if file is not None and not file.absolute().parent.is_dir():
        raise UsageError(f"{file} cannot be written: there is no folder {file.absolute().parent}")


def main() -> None:
    """Entry point. Exit status: the verb's own; 3 for files, 4 for wrong usage, where asv's verbs and ``run`` say 1."""
    verbs = entry_points(group="lockstep.commands")
    # A subclass of asv's Command is known to asv's parser once it exists. The one that is asked for is enough.
    for verb in verbs.select(name="".join(sys.argv[1:2])) or verbs:
        verb.load()
    parser, _ = asv.commands.make_argparser()
    parser.description = "Measure GPU kernels in lockstep, keep their history, find what changed."
    _rename(parser, "lockstep", f"lockstep {version('kernel-lockstep')} (asv {asv.__version__})")
    try:
        arguments = parser.parse_args()
    except SystemExit as refused:
        # argparse's 2 is what verbs say when a series failed.
        sys.exit(USAGE if refused.code == 2 else refused.code)
    if not hasattr(arguments, "func"):
        parser.print_help()
        sys.exit(USAGE)
    log.enable(arguments.verbose)
    try:
        if arguments.config:
            arguments.config = str(Path(arguments.config).resolve())
            if not Path(arguments.config).is_file():
                raise UsageError(f"there is no configuration {arguments.config}")
            os.chdir(Path(arguments.config).parent)
        _expect_json(arguments.config)
        result = arguments.func(arguments)
        sys.stdout.flush()
    except (util.UserError, util.ProcessError) as error:
        log.error(str(error))
        if hint := _hint(error):
            log.error(hint)
        verb = arguments.func.__self__
        # 1 is what others say of slower kernels, and a missing asv.conf.json is none.
        sys.exit(1 if verb.__module__.startswith("asv.") or issubclass(verb, AsvRun) else USAGE)
    except (UsageError, SuiteError, RecordError, ThresholdsError) as error:
        log.error(str(error))
        sys.exit(USAGE)
    except BrokenPipeError:
        # Whoever read what is printed has read enough; what is left of it must not raise once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        log.error(str(error))
        sys.exit(BROKEN)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        log.flush()
    sys.exit(result or 0)


def _expect_json(given: str | None) -> None:
    """Raise if asv's configuration is no JSON, which asv tells by a traceback; there need not be one."""
    for path in [given] if given else [name for name in CONFIGS if Path(name).is_file()]:
        try:
            util.load_json(path, js_comments=True)
        except ValueError as error:
            raise UsageError(f"{path} is no JSON: {error}") from error


def _rename(parser: argparse.ArgumentParser, name: str, told_version: str) -> None:
    """Our name in place of asv's in usage lines, also those of ``code diff`` and its like, and both versions."""
    parser.prog = name
    for action in parser._actions:
        if isinstance(action, argparse._VersionAction):
            action.version = told_version
        elif isinstance(action, argparse._SubParsersAction):
            for verb, its in action.choices.items():
                _rename(its, f"{name} {verb}", told_version)


def _hint(error: util.UserError | util.ProcessError) -> str:
    """What asv's message leaves out."""
    if isinstance(error, util.ProcessError) and "bad revision" in error.stderr:
        return (
            "this clone does not know that commit or branch: asv.conf.json names the branches, a command its commits; "
            "in a shallow clone, git fetch --unshallow brings them"
        )
    if "what kind of DVCS" in str(error):
        return 'what "repo" in asv.conf.json names is no git repository: commits are measured, so it must be one'
    return ""
