"""``lockstep changes``: list the changes in the history."""

from __future__ import annotations

import argparse
import datetime
import re
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from asv.commands import Command
from asv.console import log

from lockstep.commands.alert_options import add_names, add_sources, expect_names, names_of, run_analysis
from lockstep.commands.results_options import repository
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BAD_NEWS, BROKEN, OK, UsageError
from lockstep.processes.git import Git
from lockstep.record.console import plain_table, wide_console
from lockstep.record.counted import counted
from lockstep.record.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lockstep.alerts.cause.found_change import Sense
    from lockstep.alerts.model import AnalysisResult, FoundChange
    from lockstep.history.snapshot import Results


class Changes(Verb, Command):  # type: ignore[misc]  # asv has no types
    """List what became slower or faster, and why.

    Analyse the history and list what became slower or faster, the newest first, with the cause. Exit status: 1 a
    slowdown is listed that is probably the code's, or a change whose better direction is unknown; 3 there is nothing
    to analyse; 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("--since", metavar="DATE|COMMIT", help="only changes at or after this day or commit")
        add_names(parser)
        parser.add_argument(
            "--exact",
            action="store_true",
            help="also list quantities that are counted without a GPU, such as registers; they explain a time",
        )
        parser.add_argument("--all", action="store_true", help="include suppressed changes: small, unsure or noise")
        parser.add_argument("--json", action="store_true", help="print one JSON object, with the evidence")
        add_sources(parser)

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Analyse the results, print the changes, and return the exit status."""
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from lockstep.history.problem_tally import tally

    results, now = run_analysis(args)
    dates = {commit.hash: commit.date for commit in results.commits()}
    begin = _since(args.since, results, Git(repository(args)))
    if not results.series():
        unread = "; ".join(tally(results).sentences())
        log.error(f"{results.root} holds no results{': ' + unread if unread else ': `lockstep run` makes them'}")
        return BROKEN
    expect_names(args, names_of(results))
    selected = [
        change
        for change in now.changes
        if (args.all or change.suppressed in ("", "unconfirmed"))
        and args.machine in (None, change.series.machine)
        and args.family in (None, change.series.family, change.series.suite)
        and dates[change.commit] >= begin
    ]
    changes = [change for change in selected if args.exact or not change.series.exact]
    changes.sort(key=lambda one: (one.series.exact, -dates[one.commit], _ORDER[one.sense], -abs(one.weight)))
    if args.json:
        extra = {"problems": tally(results).as_json(), "line": results.line_note}
        print_json(_json(changes) | extra)
    else:
        _print(changes, now, args, {commit: _day(date) for commit, date in dates.items()})
        _print_too_few(results, now, args)
        if unlisted := len(selected) - len(changes):
            noun = "change of an exact quantity is" if unlisted == 1 else "changes of exact quantities are"
            print(f"{unlisted} {noun} not listed: --exact lists them after the times")
        for sentence in filter(None, (*tally(results).sentences(), results.line_note)):
            print(sentence)
    excused = _excused(now)
    return BAD_NEWS if any(_is_open(change) and change.key not in excused for change in changes) else OK


#: Number of machines that a sentence names.
_MOST_NAMED = 5

#: The order in which the changes of a commit are listed.
_ORDER: Mapping[Sense, int] = {"worse": 0, "changed": 1, "better": 2}


def _is_open(change: FoundChange) -> bool:
    """Return whether a change has no better direction, or is probably the code's loss; a fifth of it must be left."""
    from lockstep.alerts.alert_ranking import loss_of_change

    if change.suppressed or change.sense == "better":
        return False
    if change.sense == "changed":
        return abs(change.left) > abs(change.size) / 5
    loss = loss_of_change(change)
    return loss is not None and not loss.doubt and change.left > abs(change.size) / 5


def _excused(now: AnalysisResult) -> set[str]:
    """Return the keys of the changes that are accepted, or that are probably not the code's by what alerts know."""
    from lockstep.alerts.alert_ranking import doubted

    return {
        member.key
        for alert in now.alerts
        for member in alert.members
        if member.waiver or (alert.topic == "slower" and doubted(alert))
    }


def _day(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%d")


def _since(text: str | None, results: Results, git: Git) -> int:
    """Return the date of the day or commit that ``--since`` names, in ms since 1970; 0 without ``--since``.

    Raises:
        UsageError: the text is neither a day nor a commit.
    """
    if text is None:
        return 0
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            day = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
        except ValueError as error:
            raise UsageError(f"--since {text} is not a day: {error}; write a day such as 2026-11-21") from error
        return int(day.timestamp() * 1000)
    matches = [commit for commit in results.commits() if len(text) >= 4 and commit.hash.startswith(text)]
    if len(matches) == 1:
        return matches[0].date
    if not matches and not text.startswith("-") and (seconds := git.try_line("log", "-1", "--format=%at", text, "--")):
        return 1000 * int(seconds)
    known = "several commits begin with it" if matches else "git knows no such commit"
    raise UsageError(f"--since {text}: {known}; write a day (2026-11-21) or a commit (v1.2, HEAD~5, a hash)")


#: What the JSON of a change says by the names of ``FoundChange``.
_FIELDS = ["size", "measure", "better", "sense", "low", "high", "confidence", "left", "old", "new", "before", "after"]


def _json(changes: Sequence[FoundChange]) -> dict[str, Any]:
    return {
        "changes": [
            {
                **asdict(change.series),
                **{name: getattr(change, name) for name in _FIELDS},
                "commits": [] if change.unknown else list(change.between),
                "unknown": change.unknown,
                "reported_at": change.reported_at,
                "cause": asdict(change.cause),
                "noise": None if change.noise is None else {"scale": change.noise, "measure": change.measure},
                "quiet": change.suppressed,
            }
            for change in changes
        ]
    }


def _print(
    changes: Sequence[FoundChange], now: AnalysisResult, args: argparse.Namespace, days: Mapping[str, str]
) -> None:
    from lockstep.alerts.text import amount, interval, sense_words
    from lockstep.detect.constants import RUN

    console = wide_console()
    texts = ("series", "machine", "commits", "cause", *(["suppressed"] if args.all else []))
    table = plain_table(("date",), ("change", "95 % interval"), texts)
    for change, name in _events(changes):
        table.add_row(
            days[change.commit],
            amount(change),
            interval(change),
            name,
            change.series.machine,
            change.range or "none",
            f"{'' if change.confirmed else 'unconfirmed, '}{change.cause.kind}: {change.cause.sentence}",
            *([change.suppressed] if args.all else []),
        )
    if changes:
        console.print(table)
    else:
        compared = "`lockstep gate --base OLD --head NEW` compares two commits"
        console.print(f"none is known without {RUN} timed commits on either side; {compared}", highlight=False)
    series = sum(
        number
        for (machine, *names), number in now.series.items()
        if args.machine in (None, machine) and args.family in (None, *names)
    )
    words = sense_words(all(change.series.timed for change in changes))
    senses = Counter(change.sense for change in changes)
    parts = ", ".join(f"{senses[sense]} {word}" for sense, word in words.items() if senses[sense] or sense != "changed")
    unconfirmed = sum(not change.confirmed for change in changes)
    parts += f"; {unconfirmed} of them unconfirmed" if unconfirmed else ""
    console.print(f"{counted(len(changes), 'change')} in {series} series: {parts}", highlight=False)
    for alert in now.alerts:
        if alert.topic == "silent" and alert.machine in now.dead and args.machine in (None, alert.machine):
            console.print(f"{alert.text}: the changes listed for it are as of that day", highlight=False)


def _print_too_few(results: Results, now: AnalysisResult, args: argparse.Namespace) -> None:
    """Name the machines whose commits are too few to tell a change; an exact quantity needs one on either side."""
    from lockstep.detect.constants import RUN

    timed = {series.machine for series in results.series() if not results.benchmarks[series.benchmark].exact}
    measured = {machine: len(commits) for machine, commits in now.commits.items() if args.machine in (None, machine)}
    few = [f"{machine} ({count})" for machine, count in measured.items() if machine in timed and count < 2 * RUN]
    one = [machine for machine, count in measured.items() if machine not in timed and args.exact and count < 2]
    for machines, sentence in (
        (few, f"too few measured commits for a change, which needs {RUN} on either side"),
        (one, "one commit has exact quantities, and nothing to compare them with"),
    ):
        if machines:
            more = f" and {len(machines) - _MOST_NAMED} more machines" if len(machines) > _MOST_NAMED else ""
            wide_console().print(f"{sentence}: {', '.join(machines[:_MOST_NAMED])}{more}", highlight=False)


def _events(changes: Sequence[FoundChange]) -> Iterator[tuple[FoundChange, str]]:
    """Yield the changes that have a row each, with the name of the row.

    The exact quantities of a variant that changed in the same commits are one event: its first change, the largest, has
    the row.
    """
    events: dict[Any, list[FoundChange]] = {}
    for place, change in enumerate(changes):
        series = change.series
        event = (series.machine, series.suite, series.variant, change.before, change.after, change.suppressed)
        events.setdefault(event if series.exact else place, []).append(change)
    for first, *others in events.values():
        quantities = ", ".join(dict.fromkeys(change.series.quantity for change in others))
        yield first, first.series.label + (f" and {len(others)} more: {quantities}" if others else "")
