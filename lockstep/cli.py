"""The ``lockstep`` command: everything asv can do, and the verbs that packages register."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

import asv.commands
from asv import util
from asv.console import log

from lockstep.record import RecordError
from lockstep.suite import SuiteError
from lockstep.thresholds import ThresholdsError

#: Exit status of a wrong command line or a broken suite.
USAGE = 4


def main() -> None:
    """Entry point. Exit status: the verb's own; 1 for asv's user errors, 4 for wrong usage."""
    for verb in entry_points(group="lockstep.commands"):
        verb.load()  # a subclass of asv's Command is known to asv's parser once it exists
    parser, subparsers = asv.commands.make_argparser()
    parser.prog = "lockstep"
    parser.description = "Measure GPU kernels in lockstep, keep their history, find what changed."
    for name, one in subparsers.choices.items():
        one.prog = f"lockstep {name}"
    try:
        arguments = parser.parse_args()
    except SystemExit as refused:
        # argparse's 2 is what verbs say when a series failed.
        sys.exit(USAGE if refused.code == 2 else refused.code)
    if not hasattr(arguments, "func"):
        parser.print_help()
        sys.exit(USAGE)
    log.enable(arguments.verbose)
    if arguments.config:
        arguments.config = str(Path(arguments.config).resolve())
        os.chdir(Path(arguments.config).parent)
    try:
        result = arguments.func(arguments)
    except (util.UserError, util.ProcessError) as error:
        # A ProcessError is git's, most often: a branch of asv.conf.json that this clone has not got.
        log.error(str(error))
        sys.exit(1)
    except (SuiteError, RecordError, ThresholdsError) as error:
        log.error(str(error))
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        log.flush()
    sys.exit(result or 0)
