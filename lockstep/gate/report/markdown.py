"""The report as Markdown, for a job's summary and a comment. Names come from a pull request and are not trusted."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

from lockstep.gate.report.report import Report, headline
from lockstep.gate.report.rows import COLUMNS, remarks, rows, same, usual_meanings

#: Environment variable with the address of the pages, as for messages about alerts.
PAGES = "LOCKSTEP_URL"

#: Maximum rows of the table. A comment holds 65,536 characters, and nobody reads more rows.
MOST_ROWS = 100

#: Maximum characters of a cell, and of a remark. A remark may hold a command, which must not be cut.
MOST_TEXT, MOST_REMARK = 300, 1000

#: A remark that ends with a command: its purpose, and the command.
_COMMAND = re.compile(r"(to [\w ,]+: )(lockstep .+)")

#: The sign of a pass in which some cases have no verdict.
_UNDECIDED = "🟡"

_SIGNS = {"pass": "✅", "slower": "🔴", "failed": "❌", "infrastructure": "⚠️", "interrupted": "⚠️"}


def to_markdown(report: Report) -> str:
    """Return the headline, a table of the cases with another verdict than "same", and remarks on the measurement."""
    table_rows = rows(report)
    sign = _UNDECIDED if report.state == "pass" and report.of("unsure") else _SIGNS[report.state]
    lines = [f"### {sign} {escape(headline(report), most=2000)}", ""]
    if table_rows:
        lines += [_row(COLUMNS), "|" + "---|" * len(COLUMNS)]
        lines += [_row(row.cells) for row in table_rows[:MOST_ROWS]]
        if len(table_rows) > MOST_ROWS:
            lines += ["", f"… and {len(table_rows) - MOST_ROWS} more rows; the JSON report has them."]
        lines.append("")
    if meanings := usual_meanings(report):
        lines += ["What the figures of the slower kernels usually mean:", ""]
        lines += [*(f"- {escape(told, MOST_REMARK)}" for told in meanings), ""]
    unchanged = [f"{escape(suite)} {count} ({unchanged} unchanged)" for suite, count, unchanged in same(report)]
    if unchanged:
        lines += [f"Same: {', '.join(unchanged)}.", ""]
    lines += ["<details><summary>How it was measured</summary>", ""]
    lines += [f"- {_remark(remark)}" for remark in remarks(report)]
    lines += ["", "</details>", ""]
    return "\n".join(lines)


def _remark(text: str) -> str:
    """Return a remark; its command becomes a code span, which keeps every character, so that it can be copied."""
    found = _COMMAND.fullmatch(" ".join(text.split()))
    if found is None or len(text) > MOST_REMARK:
        return escape(text, MOST_REMARK)
    purpose, command = found.groups()
    # The fence is longer than any in the command, so that the command cannot end the span.
    fence = "`" * (1 + max(map(len, re.findall("`+", command)), default=0))
    space = " " if "`" in (command[0], command[-1]) else ""
    return f"{purpose}{fence}{space}{command}{space}{fence}"


def pages_link(address: str) -> str:
    """Return a link to the pages of the history; "" if the address is not one of the web."""
    if not re.match(r"https?://\S+$", address):
        return ""
    return f" · [earlier results, and the alerts]({quote(address, safe=':/?&=%#')})"


def escape(text: str, most: int = MOST_TEXT) -> str:
    """Return a text that Markdown shows unchanged, without markup, HTML, mention, reference or link."""
    flat = " ".join(text.split())
    flat = flat if len(flat) <= most else f"{flat[: most - 1]}…"
    # A zero-width space follows each character that GitHub would turn into a mention, a reference or a link.
    flat = re.sub(r"(@|#|:(?=//)|www(?=\.))", "\\1\u200b", flat)
    return re.sub(r"([\\`*_{}\[\]()|~!$>])", r"\\\1", html.escape(flat, quote=False).replace("&gt;", ">"))


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(escape(cell) for cell in cells) + " |"
