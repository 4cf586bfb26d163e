"""Warn before asv's ``check`` of what asv accepts in silence: unknown keys, and suites that are slow to import."""

from __future__ import annotations

import argparse
import difflib

from asv.commands.check import Check
from asv.config import Config
from asv.console import log

#: Keys that asv and Lockstep read although asv's ``Config`` has no attribute of this name.
_FURTHER = ("build_cache_size", "wheel_cache_size", "lockstep")


def warn(arguments: argparse.Namespace) -> None:
    """If ``check`` is called, warn of keys of asv.conf.json that nobody reads, and of suites that import torch.

    Raises:
        UserError: asv cannot use the configuration.
        SuiteError: a suite cannot be used.
    """
    if getattr(arguments.func, "__self__", None) is not Check:
        return
    conf = Config.load(arguments.config)
    known = [*vars(Config()), *_FURTHER]
    for key in sorted(vars(conf).keys() - set(known)):
        close = difflib.get_close_matches(key, known, n=1)
        advice = f"; did you mean {close[0]!r}?" if close else ""
        log.warning(f"asv.conf.json: neither asv nor Lockstep knows the key {key!r}: it has no effect{advice}")
    if conf.environment_type == "lockstep":
        from lockstep.suite.discovery import Workspace, slow_imports

        for warning in slow_imports(Workspace.of(conf).suites):
            log.warning(warning)
