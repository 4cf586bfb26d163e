"""``lockstep changes``: list the changes in the history."""

from __future__ import annotations

import argparse
import datetime
import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from asv.commands import Command
from asv.console import log

from lockstep.commands.alert_options import add_sources, expect_names, names_of, run_analysis, run_verb
from lockstep.commands.locations import open_store
from lockstep.processes.exit_status import BAD_NEWS, BROKEN, OK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lockstep.alerts.analysis import AnalysisResult, FoundChange
    from lockstep.detect import Noise
    from lockstep.history.snapshot import Results


class Changes(Command):  # type: ignore[misc]  # asv has no types
    """List what changed."""

    @classmethod
    def setup_arguments(cls, subparsers: Any) -> argparse.ArgumentParser:
        """Add ``changes`` to the command line."""
        parser: argparse.ArgumentParser = subparsers.add_parser(
            "changes",
            help="List what became slower or faster, and why",
            description="Analyse the history and list what became slower or faster, the newest first, with the cause. "
            "Exit status: 0 no listed slowdown remains, 1 one remains, 3 there is nothing to analyse, 4 wrong usage.",
        )
        parser.add_argument("--since", metavar="DATE|COMMIT", help="only changes at this day or commit, and later ones")
        parser.add_argument("--machine", help="only on this machine")
        parser.add_argument("--family", help="only of this family")
        parser.add_argument("--all", action="store_true", help="include suppressed changes: small, unsure or noise")
        parser.add_argument("--json", action="store_true", help="print one JSON object, with the evidence")
        add_sources(parser)
        parser.set_defaults(func=cls.run_from_args)
        return parser

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Analyse and list."""
        return run_verb(_run, args)


def _run(args: argparse.Namespace) -> int:
    # Start-up: `lockstep --help` imports every verb.
    from lockstep.history.unread import tally

    results, now = run_analysis(args)
    dates = {commit.hash: commit.date for commit in results.commits()}
    begin = _since(args.since, results)
    if not results.series():
        unread = "; ".join(tally(results).sentences())
        log.error(f"{results.root} holds no results{': ' + unread if unread else ': `lockstep run` makes them'}")
        return BROKEN
    expect_names(args, names_of(results))
    found = [
        one
        for one in now.found
        if (args.all or not one.suppressed)
        and args.machine in (None, one.step.series.machine)
        and args.family in (None, one.step.series.family, one.step.series.suite)
        and dates[one.step.after.commit] >= begin
    ]
    found.sort(key=lambda one: (-dates[one.step.after.commit], -one.step.size))
    if args.json:
        print(json.dumps(_json(found, now, _noise(found, results, args)) | {"problems": tally(results).as_json()}))
    else:
        _print(found, now, args)
        for sentence in tally(results).sentences():
            print(sentence)
    still = any(not one.suppressed and one.step.size > 0 and one.step.left > one.step.size / 5 for one in found)
    return BAD_NEWS if still else OK


def _since(text: str | None, results: Results) -> int:
    """Return the date of a day, or of a commit, in ms since 1970.

    Raises:
        LifecycleError: the text is neither.
    """
    # Start-up: `lockstep --help` imports every verb.
    from lockstep.alerts.lifecycle import LifecycleError

    if text is None:
        return 0
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            day = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
        except ValueError as error:
            raise LifecycleError(f"--since {text}: {error}") from error
        return int(day.timestamp() * 1000)
    found = [commit for commit in results.commits() if len(text) >= 4 and commit.hash.startswith(text)]
    if len(found) == 1:
        return found[0].date
    known = "several commits begin with it" if found else "no commit with results begins with it"
    raise LifecycleError(f"--since {text}: {known}; write a day (2026-11-21) or the beginning of a commit's hash")


def _noise(found: Sequence[FoundChange], results: Results, args: argparse.Namespace) -> dict[str, Noise]:
    """Return the noise of the series of these changes, by row, without series analysed again meanwhile."""
    # Start-up: `lockstep --help` imports every verb.
    from lockstep.alerts.analysis_cache import AnalysisCache
    from lockstep.alerts.detector_state import analyses

    cache = AnalysisCache(open_store(args).cache)
    noise: dict[str, Noise] = {}
    for machine in results.machines:
        rows = list(dict.fromkeys(one.row for one in found if one.step.series.machine == machine))
        try:
            found_analyses = analyses(cache.detector(machine), results.state(machine), rows)
        except (ValueError, KeyError):
            continue
        noise |= {row: one.noise for row, one in zip(rows, found_analyses, strict=True)}
    return noise


def _json(found: Sequence[FoundChange], now: AnalysisResult, noise: Mapping[str, Noise]) -> dict[str, Any]:
    return {
        "changes": [
            {
                **asdict(one.step.series),
                "log_size": one.step.size,
                "low": one.step.low,
                "high": one.step.high,
                "confidence": one.step.confidence,
                "left": one.step.left,
                "unsettled": one.step.unsettled,
                "before": one.step.good,
                "after": one.step.end,
                "commits": [] if one.step.unknown else list(one.step.between),
                "unknown": one.step.unknown,
                "reported_at": one.step.reported_at,
                "cause": asdict(one.cause),
                "noise": {"scale": noise[one.row].scale, "kind": noise[one.row].kind} if one.row in noise else None,
                "quiet": one.suppressed,
            }
            for one in found
        ],
        "unchanged_code": {machine: {"changes": n, "rms_log": rms} for machine, (n, rms) in now.unchanged_code.items()},
    }


def _print(found: Sequence[FoundChange], now: AnalysisResult, args: argparse.Namespace) -> None:
    # Start-up: `lockstep --help` imports every verb.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from lockstep.alerts.text import amount, span
    from lockstep.detect.settings import Settings

    console = Console()
    if not console.is_terminal and console.width < 160:
        console = Console(width=200)
    table = Table(header_style="bold", show_edge=False, pad_edge=False)
    for name in ("change", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("series", "machine", "commits", "cause"):
        table.add_column(name, overflow="fold")
    if args.all:
        table.add_column("suppressed")
    for one in found:
        step = one.step
        cells = [
            "unsettled" if step.unsettled else amount(step),
            span(step.low, step.high),
            step.series.label,
            step.series.machine,
            step.range or "none",
            f"{one.cause.kind}: {one.cause.sentence}",
        ]
        table.add_row(*(Text(cell) for cell in [*cells, *([one.suppressed] if args.all else [])]))
    if found:
        console.print(table)
    slower = sum(1 for one in found if one.step.size > 0)
    many = "change" if len(found) == 1 else "changes"
    series = sum(
        number
        for (machine, *names), number in now.series.items()
        if args.machine in (None, machine) and args.family in (None, *names)
    )
    counted = f"{len(found)} {many} in {series} series: {slower} slower, {len(found) - slower} faster"
    console.print(counted, highlight=False)
    for alert in now.alerts:
        if alert.topic == "silent" and alert.machine in now.dead and args.machine in (None, alert.machine):
            console.print(f"{alert.text}: its changes are those of that time", highlight=False)
    side = Settings().run
    for machine, measured in now.commits.items():
        if len(measured) < 2 * side and args.machine in (None, machine):
            few = f"{machine}: {len(measured)} measured commits; a change needs {side} on either side to be reported"
            console.print(few, highlight=False)
    for machine, (count, rms) in now.unchanged_code.items():
        console.print(f"{machine}: {count} changes in unchanged machine code, {rms:.2%} rms: noise", highlight=False)
