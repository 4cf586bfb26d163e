"""What all verbs have in common."""

from __future__ import annotations

import argparse
import inspect
from typing import Any


class Verb:
    """A verb of the command line, named after its class; derive it from asv's ``Command`` as well.

    The first line of its docstring is its help in the list of verbs, the rest the description above its options.
    """

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add the verb to the command line."""
        title, _, description = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")
        name = cls.__name__.removesuffix("Verb").lower()
        parser: argparse.ArgumentParser = subparsers.add_parser(
            name, help=title.removesuffix("."), description=description
        )
        cls.add_options(parser)
        parser.set_defaults(func=cls.run_from_args)  # type: ignore[attr-defined]  # Command has it
        return parser

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
