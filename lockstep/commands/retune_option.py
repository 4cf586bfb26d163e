"""The option ``--retune`` of the verbs that measure, and the file of the choices of tuners."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lockstep.timing.tuners.choices import NAME


def add_retune_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--retune``."""
    parser.add_argument(
        "--retune",
        action="store_true",
        help="let autotuned kernels choose for themselves (default: equal kernels take one stored choice)",
    )


def tuned_file(conf: Any) -> Path:
    """Return the file with the choices of tuners."""
    return Path(conf.results_dir).resolve() / NAME
