"""The report as Markdown, for a job's summary and a comment. Names come from a pull request: nothing is trusted."""

from __future__ import annotations

import html
import re

from lockstep.gate.report.model import Report, headline
from lockstep.gate.report.rows import COLUMNS, remarks, rows, same

#: Rows of the table; a comment holds 65,536 characters, and nobody reads more.
MOST_ROWS = 100

#: Longest cell, and longest remark: a command that is cut is of no use.
MOST_TEXT, MOST_REMARK = 300, 1000

_SIGNS = {"pass": "✅", "slower": "🔴", "failed": "❌", "infrastructure": "⚠️", "interrupted": "⚠️"}


def to_markdown(report: Report) -> str:
    """The headline, a table of everything that is not the same, and how the numbers came about."""
    table_rows = rows(report)
    lines = [f"### {_SIGNS[report.state]} {escape(headline(report), most=2000)}", ""]
    if table_rows:
        lines += [_row(COLUMNS), "|" + "---|" * len(COLUMNS)]
        lines += [_row(row.cells) for row in table_rows[:MOST_ROWS]]
        if len(table_rows) > MOST_ROWS:
            lines += ["", f"… and {len(table_rows) - MOST_ROWS} more rows; the JSON report has them."]
        lines.append("")
    unchanged = [f"{escape(suite)} {count} ({proved} proved)" for suite, count, proved in same(report)]
    if unchanged:
        lines += [f"Same: {', '.join(unchanged)}.", ""]
    lines += ["<details><summary>How it was measured</summary>", ""]
    lines += [f"- {escape(remark, MOST_REMARK)}" for remark in remarks(report)]
    lines += ["", "</details>", ""]
    return "\n".join(lines)


def escape(text: str, most: int = MOST_TEXT) -> str:
    """Text that shows as it is: no markup, HTML, mention, reference or link comes of it."""
    flat = " ".join(text.split())
    flat = flat if len(flat) <= most else f"{flat[: most - 1]}…"
    # A zero-width space after what GitHub would turn into a mention, a reference or a link, whatever surrounds it.
    flat = re.sub(r"(@|#|:(?=//)|www(?=\.))", "\\1\u200b", flat)
    return re.sub(r"([\\`*_{}\[\]()|~!$>])", r"\\\1", html.escape(flat, quote=False).replace("&gt;", ">"))


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(escape(cell) for cell in cells) + " |"
