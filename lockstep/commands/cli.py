"""The ``lockstep`` command: all verbs of asv, and the verbs that packages register as entry points."""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import asv
import asv.commands
from asv import util
from asv.commands import common_args
from asv.commands.find import Find as AsvFind
from asv.commands.quickstart import Quickstart as AsvQuickstart
from asv.commands.run import Run as AsvRun
from asv.console import log

from lockstep.commands import asv_check
from lockstep.commands.asv_show import expect_results
from lockstep.commands.config import check_config
from lockstep.processes import extras
from lockstep.processes.exit_status import BROKEN, INTERRUPTED, USAGE, Unusable, UsageError
from lockstep.processes.started_process import PRELOAD

#: Exit status of git if it does not understand the command line.
_GIT_USAGE = 129

#: Advice for an asv message, by a part of the message.
_ADVICE = {
    "Environment type must be specified": 'asv.conf.json needs "environment_type": "lockstep", '
    'and ".lockstep.asv" among its "plugins"',
    "No `asv.conf` file found": "go to the folder that has asv.conf.json, or name the file with --config; "
    "Lockstep's docs/adopting.md has one to begin with",
    "what kind of DVCS": '"repo" in asv.conf.json must name a git repository, because commits are measured',
    "Failed to build the project": "asv imports the suites beside the newest commit of a branch: check that a branch "
    'that "branches" of asv.conf.json names has a commit, and read the lines above. If a module there is of another '
    'tool, give the suites a folder of their own: "benchmark_dir" in asv.conf.json',
}


def expect_folder(file: Path | None) -> None:
    """Check that a file's folder exists, before a verb spends minutes on work whose result it could not write.

    Raises:
        UsageError: the folder does not exist.
    """
    if file is not None and not file.absolute().parent.is_dir():
        raise UsageError(f"{file} cannot be written: the folder {file.absolute().parent} does not exist")


def main(program: str = "lockstep") -> None:
    """Run the command and end the process with its exit status. docs/exit-statuses.md has the table.

    Statuses 1 and 2 are verdicts of a verb. Every error, from whatever source, ends with ``BROKEN`` or ``USAGE``.

    Args:
        program: the command that usage lines show.
    """
    try:
        status = _status(program)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed the pipe
        _drop_output()
        status = 128 + signal.SIGPIPE
    except OSError as error:  # a full disk, for example
        _drop_output()
        log.error(_problem(error))
        status = BROKEN
    sys.exit(status)


def _drop_output() -> None:
    """Drop what is left of the output: flushing it must not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _status(program: str) -> int:
    """Run the command line and return its exit status."""
    verbose = False
    try:
        arguments = _parse(program)
        verbose = arguments.verbose
        _enable_log(verbose)
        if arguments.config:
            arguments.config = str(Path(arguments.config).resolve())
            if not Path(arguments.config).is_file():
                raise UsageError(f"the configuration file {arguments.config} does not exist")
            os.chdir(Path(arguments.config).parent)
        section = check_config(arguments.config)
        if preload := section.get("preload"):
            os.environ[PRELOAD] = ",".join(preload)
        expect_results(arguments)
        asv_check.warn(arguments)
        result = arguments.func(arguments)
        return _verdict(arguments.func, result)
    except (util.UserError, util.ProcessError) as error:
        if str(error) == "Interrupted.":  # asv's own error for Ctrl-C
            return INTERRUPTED
        log.error(str(error))
        if hint := _advice_on(error):
            log.error(hint)
        # git fails for an unknown name. The failure of any other process is not a mistake in the command line.
        return BROKEN if isinstance(error, util.ProcessError) and not hint else USAGE
    except UsageError as error:
        log.error(str(error))
        return USAGE
    except BrokenPipeError:
        raise
    except (OSError, Unusable) as error:
        _show_traceback(verbose)
        log.error(_problem(error))
        return BROKEN
    except BrokenExecutor:
        _show_traceback(verbose)
        log.error("a child process was killed, perhaps for lack of memory: free memory and try again")
        return BROKEN
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as ended:
        return _ended(ended)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (advice := extras.missing(error)):
            log.error(advice)
            return BROKEN
        if advice := _advice_on(error):  # asv raises a RuntimeError for a key that is missing in its configuration
            log.error(advice)
            return USAGE
        _show_traceback(verbose)
        log.error(f"unexpected {_brief(error)}. --verbose prints the traceback")
        return BROKEN
    finally:
        log.flush()


def _enable_log(verbose: bool) -> None:
    """Enable asv's console, and let it print warnings and errors to standard error.

    It prints all messages to standard output, where a program expects the answer of a verb, and without their values.
    """
    log.enable(verbose)
    console = logging.getLogger().handlers[-1]

    def is_for_output(record: logging.LogRecord) -> bool:
        record.msg, record.args = record.getMessage(), None
        if record.levelno < logging.WARNING:
            return True
        log.flush()  # ends a line of progress
        with contextlib.redirect_stdout(sys.stderr):
            console.emit(record)
            log.flush()
        return False

    console.addFilter(is_for_output)


def _advice_on(error: Exception) -> str:
    """Return advice that the error message of asv or git lacks, or ""."""
    if isinstance(error, util.ProcessError):
        if "bad revision" in error.stderr:
            return (
                "this clone does not know that commit or branch: asv.conf.json names the branches, the command names "
                "commits; in a shallow clone, git fetch --unshallow fetches them"
            )
        if "rev-list" in error.args and error.retcode == _GIT_USAGE:
            return "name the commits: HEAD~5..HEAD for a range, 'HEAD^!' for one, NEW for those without results"
        return ""
    for part, advice in _ADVICE.items():
        if part in str(error):
            return advice
    return ""


def _parse(program: str) -> argparse.Namespace:
    """Load the requested verb and parse the command line.

    Raises:
        SystemExit: after printing help or versions, or because the command line is wrong.
    """
    verbs = entry_points(group="lockstep.commands")
    # asv's parser finds every loaded subclass of its Command, so only the requested verb is loaded.
    for verb in verbs.select(name="".join(sys.argv[1:2])) or verbs:
        verb.load()
    # asv reads its version from disk for each of its forty parsers, which took most of the parsing time.
    common_args.get_version = functools.cache(common_args.get_version)
    parser, _ = asv.commands.make_argparser()
    parser.description = "Measure GPU kernels in lockstep, store their history, find what changed."
    _rename(parser, program, f"lockstep {version('kernel-lockstep')} (asv {asv.__version__})")
    try:
        arguments: argparse.Namespace
        arguments, unknown = parser.parse_known_args()
        if unknown:
            _requested_parser(parser, sys.argv[1:]).error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as refused:
        # argparse exits with 2, but verbs return 2 for a failed series.
        raise SystemExit(USAGE if refused.code == 2 else refused.code) from None
    if not hasattr(arguments, "func"):
        parser.print_help()
        raise SystemExit(USAGE)
    return arguments


def _requested_parser(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the requested verb and of its action.

    For an unknown option argparse would print the usage line of the whole command, which lists other verbs.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for place, word in enumerate(words):
                if word in action.choices:
                    return _requested_parser(action.choices[word], words[place + 1 :])
    return parser


def _verdict(function: Any, result: Any) -> int:
    """Return the exit status for the result of a verb. For asv's own verbs, a result of 1 can mean that nothing ran."""
    verb = getattr(function, "__self__", None)
    if result == 1 and (verb in (AsvFind, AsvQuickstart) or (isinstance(verb, type) and issubclass(verb, AsvRun))):
        return USAGE
    return int(result or 0)


def _ended(ended: SystemExit) -> int:
    """Return the exit status for a ``SystemExit``. A text instead of a number is an error message."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    log.error(str(ended.code))
    return BROKEN


def _problem(error: OSError | Unusable) -> str:
    """Return the message of an error. A disk that is full while output is written has no file's name in its error."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        return f"the output cannot be written: {error.strerror}"
    return str(error) or type(error).__name__


def _brief(error: Exception) -> str:
    """Return type, message and location of an error: ``KeyError: 'x' (lockstep/gate/run.py:12)``."""
    message = " ".join(str(error).split())[:500] or "no message"
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(*Path(frames[-1].filename).parts[-3:])}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{at}"


def _show_traceback(verbose: bool) -> None:
    if verbose:
        traceback.print_exc()


def _rename(parser: argparse.ArgumentParser, name: str, versions: str) -> None:
    """Replace asv's name in usage lines by ``name``, also for verbs and actions, and asv's version by ``versions``."""
    parser.prog = name
    for action in parser._actions:
        if isinstance(action, argparse._VersionAction):
            action.version = versions
        elif isinstance(action, argparse._SubParsersAction):
            for verb, its in action.choices.items():
                _rename(its, f"{name} {verb}", versions)
