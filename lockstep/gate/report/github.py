"""Output for a GitHub workflow: annotations on the source, step outputs, the job's summary."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from lockstep.gate.model import Verdict
from lockstep.gate.report.markdown import PAGES, pages_link, to_markdown
from lockstep.gate.report.report import Report, headline
from lockstep.gate.report.rows import line

#: GitHub shows at most ten errors and ten warnings per step.
MOST_ANNOTATIONS = 10


def annotate(report: Report, prefix: str = "") -> Iterator[str]:
    """Yield workflow commands for lines with problems, worst first. ``prefix``: the project's folder, "" or "sub/"."""
    by_line: dict[tuple[str, int], list[Verdict]] = {}
    for verdict in (*report.of("failed"), *report.of("slower")):
        by_line.setdefault((verdict.file, verdict.line), []).append(verdict)
    located = sorted(by_line.items(), key=lambda item: not any(verdict.blocks for verdict in item[1]))
    for (file, number), verdicts in located[:MOST_ANNOTATIONS]:
        level = "error" if any(verdict.blocks for verdict in verdicts) else "warning"
        more = f" (and {len(verdicts) - 1} more)" if len(verdicts) > 1 else ""
        yield command(level, f"{prefix}{file}" if file else "", number, line(verdicts[0]).strip() + more)
    if report.state in ("infrastructure", "interrupted"):
        yield command("error", "", 0, headline(report))


def command(level: str, file: str, number: int, message: str) -> str:
    """Return ``::error file=…,line=…::message``, escaped as in actions/toolkit (packages/core/src/command.ts)."""
    place = f" file={_property(file)},line={number}" if file and number else ""
    return f"::{level}{place}::{_data(message)}"


def write_outputs(report: Report, path: Path, report_file: str) -> None:
    """Append ``verdict``, ``regressions`` and ``report`` to the step's outputs."""
    outputs: Mapping[str, str] = {
        "verdict": report.state,
        "regressions": str(len(report.regressions)),
        "report": report_file,
    }
    with path.open("a", encoding="utf-8") as file:
        for name, value in outputs.items():
            # The delimiter is random, so that no value contains it: a file name with a newline must not add outputs.
            end = f"end-{secrets.token_hex(16)}"
            file.write(f"{name}<<{end}\n{value}\n{end}\n")


def append_summary(report: Report, path: Path) -> None:
    """Append the report, as Markdown, to the file that becomes the summary of the job."""
    with path.open("a", encoding="utf-8") as file:
        file.write(to_markdown(report))
        if link := pages_link(os.environ.get(PAGES, "")):
            file.write(f"{link.removeprefix(' · ')}\n")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
