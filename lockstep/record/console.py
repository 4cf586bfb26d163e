"""Make the console and the tables with which the commands print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table


def line_console(*, stderr: bool = False) -> Console:
    """Return a console that prints lines as they are: unbroken, with each bracket, and without colours."""
    return Console(stderr=stderr, markup=False, highlight=False, soft_wrap=True)


def wide_console(file: IO[str] | None = None) -> Console:
    """Return a console that prints words as they are to ``file`` (default: standard output).

    If the file is not a terminal, the console is wide enough that lines of tables are not broken.
    """
    console = Console(file=file, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and console.width < 160:
        console.width = 200
    return console


def plain_table(
    texts: Sequence[str], numbers: Sequence[str] = (), folded: Sequence[str] = (), *, title: str | None = None
) -> Table:
    """Return a table without a frame: left-aligned ``texts``, right-aligned ``numbers``, and texts of several lines."""
    table = Table(title=title, title_justify="left", header_style="bold", show_edge=False, pad_edge=False)
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for name in folded:
        table.add_column(name, overflow="fold")
    return table
