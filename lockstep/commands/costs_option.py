"""The option ``--costs`` of the verbs that measure costs besides latency and speedup."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lockstep.record.quantity import COSTS


def add_costs_option(parser: argparse.ArgumentParser, also_measured: str = "") -> None:
    """Add the option ``--costs``. ``also_measured``, a phrase of its help, states the costs always measured."""
    of_a_call = " ".join(filter(None, ("also measure these costs of a call", also_measured)))
    parser.add_argument(
        "--costs",
        nargs="*",
        choices=COSTS,
        metavar="NAME",
        help=f"{of_a_call}, or all costs if none is named: {', '.join(COSTS)}",
    )


def requested_costs(option: Sequence[str] | None, otherwise: Sequence[str]) -> Sequence[str]:
    """Return the named costs, all costs for an option without a name, or ``otherwise`` without the option."""
    return otherwise if option is None else option or tuple(COSTS)
