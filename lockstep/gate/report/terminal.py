"""The report on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from lockstep.gate.report.report import Report, headline
from lockstep.gate.report.rows import COLUMNS, line, remarks, rows, same
from lockstep.record.console import plain_table
from lockstep.record.counted import counted

_STYLES = {"failed": "red", "slower": "red", "unsure": "yellow", "faster": "green"}


def show(report: Report, console: Console, *, plain: bool = False) -> None:
    """Print the report to a wide console.

    With ``plain``, print a line for each case with another verdict than "same", and no table.
    """
    table_rows = rows(report)
    if plain:
        for verdict in report.cases:
            if verdict.outcome != "same":
                console.print(line(verdict), soft_wrap=True)
    elif table_rows:
        table = plain_table(())
        for column in COLUMNS:
            table.add_column(column, justify="right" if "µs" in column or column == "change" else "left")
        for row in table_rows:
            table.add_row(*row.cells, style=_STYLES.get(row.outcome, ""))
        console.print(table)
    for suite, count, unchanged in same(report):
        note = f", {unchanged} of them unchanged" if unchanged else ""
        console.print(f"    same  {suite}: {counted(count, 'case')}{note}")
    for remark in remarks(report):
        console.print(remark, soft_wrap=True)
    console.print(Text(headline(report), style="bold"), soft_wrap=True)
