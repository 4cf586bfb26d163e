"""Run a verb in the process of a test, and leave asv's console as it was."""

import logging
import sys

import pytest
from asv.console import log

from lockstep.commands.cli import main


def run_verb(*words: object) -> object:
    """Run ``lockstep`` with these words and return its exit status. asv adds a handler to the root logger each time."""
    handlers, console = list(logging.getLogger().handlers), dict(vars(log))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lockstep", *map(str, words)])
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            logging.getLogger().handlers = handlers
            vars(log).update(console)
    return ended.value.code
