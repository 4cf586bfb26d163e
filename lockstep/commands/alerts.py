"""``lockstep alerts list | show | ack | mute | resolve | new-baseline | no-change | reopen | notify``."""

from __future__ import annotations

import argparse
import datetime
import getpass
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from asv.commands import Command, common_args
from asv.console import log
from rich.console import Console

from lockstep.commands.alert_options import (
    add_names,
    add_sources,
    add_state,
    alert_number,
    expect_names,
    names_of,
    open_alerts,
    run_analysis,
)
from lockstep.commands.results_options import open_store
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BAD_NEWS, BROKEN, OK
from lockstep.record.console import plain_table, wide_console
from lockstep.record.counted import counted
from lockstep.record.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstep.alerts.database.alert_row import Tracked
    from lockstep.alerts.database.store import AlertStore


class Alerts(Verb, Command):  # type: ignore[misc]  # asv has no types
    """List, show, acknowledge, mute, resolve and send alerts.

    Exit status: 0 done, 1 if `list` shows an open slowdown or `notify` could not deliver a message, 3 if the alert
    database or the store cannot be used, 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        actions = parser.add_subparsers(dest="action", required=True)
        _add_list(actions.add_parser("list", help="Analyse the results and list the open alerts"))
        show = actions.add_parser("show", help="Show one alert: cause, evidence, series, log")
        show.add_argument("--json", action="store_true", help="print one JSON object")
        ack = actions.add_parser("ack", help="Acknowledge an alert: somebody takes care of it")
        mute = actions.add_parser("mute", help="Mute an alert until a day; needs --because")
        mute.add_argument("--until", type=_day, required=True, metavar="YYYY-MM-DD", help="last day of the mute")
        resolve = actions.add_parser("resolve", help="Resolve an alert: it is fixed")
        baseline = actions.add_parser(
            "new-baseline", help="Close an alert for good: the new level is correct; needs --because"
        )
        same = actions.add_parser("no-change", help="Close an alert for good: nothing changed; needs --because")
        reopen = actions.add_parser("reopen", help="Reopen an acknowledged, muted or resolved alert")
        for action in (show, ack, mute, resolve, baseline, same, reopen):
            action.add_argument("alert", type=alert_number, help="number of the alert, as `list` shows it")
        for action in (ack, mute, resolve, baseline, same, reopen):
            needed = action in (mute, baseline, same)
            action.add_argument(
                "--because", default="", required=needed, metavar="TEXT", help="the reason; stored in the log"
            )
            action.add_argument("--by", default=_user(), metavar="NAME", help="your name (default: %(default)s)")
        actions.add_parser("notify", help="Send new alerts and the daily digest to the addresses in $LOCKSTEP_NOTIFY…")
        for action in actions.choices.values():
            add_sources(action)
            add_state(action)
            common_args.add_global_arguments(action)

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Run the requested action and return its exit status."""
        run = {"list": _list, "show": _show, "notify": _notify}.get(args.action, _act)
        return run(open_alerts(args), args)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include muted, resolved and recorded alerts")
    add_names(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    exclusive = parser.add_mutually_exclusive_group()
    exclusive.add_argument("--no-analysis", action="store_true", help="list the alerts of the last analysis")
    exclusive.add_argument("--no-list", action="store_true", help="analyse but list nothing; exit status 0 in any case")


def _list(store: AlertStore, args: argparse.Namespace) -> int:
    from lockstep.alerts.alert_ranking import doubted
    from lockstep.alerts.database.listing import Choice
    from lockstep.alerts.database.states_and_actions import OPEN

    results = None
    if not args.no_analysis:
        results, now = run_analysis(args)
        store.sync(now)
    if args.no_list:
        return OK
    if args.machine or args.family:
        # An alert may outlive the results in which it was found.
        of_alerts = [(alert.alert.machine, alert.alert.family, alert.alert.family) for alert in store.alerts(None)]
        expect_names(args, [*of_alerts, *names_of(results or open_store(args).current())])
    choice = Choice(None if args.all else OPEN, args.family or "", args.machine or "")
    alerts = store.page(choice, apart=args.json).alerts
    if args.json:
        from lockstep.notify.feed import alerts_json

        print_json(alerts_json(alerts, _site()))
    else:
        certain, apart = ([one for one in alerts if doubted(one.alert) is side] for side in (False, True))
        if certain or not apart:
            _print(certain)
        if apart:
            print(f"probably not the code: {len(apart)}")
            _print(apart)
        muted = 0 if args.all else store.count(replace(choice, states=frozenset({"muted"})))[0]
        if muted:
            print(f"and {muted} muted; --all lists {'it' if muted == 1 else 'them'}")
        if results is not None and results.line_note:
            print(results.line_note)
    if any(alert.open and alert.alert.topic == "slower" and not doubted(alert.alert) for alert in alerts):
        return BAD_NEWS
    if results is not None and not results.series():
        log.error(f"{results.root} holds no results: `lockstep run` makes them")
        return BROKEN
    return OK


def _print(alerts: Sequence[Tracked]) -> None:
    from lockstep.alerts.alert_ranking import explain
    from lockstep.alerts.text import also, headline, status

    console = wide_console()
    if not alerts:
        console.print("There are no alerts.")
        return
    table = plain_table((), ("no.",), ("state", "alert", "cause", "owner"))
    for alert in alerts:
        title = "\n".join(filter(None, (headline(alert.alert), explain(alert.alert), also(alert.alert))))
        cause = alert.alert.cause.kind if alert.alert.members else ""
        table.add_row(str(alert.id), status(alert), title, cause, alert.alert.owner)
    console.print(table)


def _show(store: AlertStore, args: argparse.Namespace) -> int:
    alert = store.alert(args.alert)
    events = store.log(args.alert)
    if args.json:
        from lockstep.notify.feed import alerts_json

        [content] = alerts_json([alert], _site())
        print_json(content | {"log": list(events)})
        return OK
    from lockstep.alerts.story import tell
    from lockstep.alerts.text import status

    console, story = Console(), tell(alert.alert, alert.id)
    printed = [f"alert {alert.id}, {status(alert)}: {story.title}", *story.lines(limit=40)]
    for event in events:
        at = datetime.datetime.fromtimestamp(event.at / 1000, datetime.UTC)
        printed.append(f"{at:%Y-%m-%d %H:%M} {event.who}: {event.what}{f': {event.note}' if event.note else ''}")
    for line in printed:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return OK


def _act(store: AlertStore, args: argparse.Namespace) -> int:
    from lockstep.alerts.database.states_and_actions import ENDINGS, Act, Action
    from lockstep.alerts.text import status

    ending = ENDINGS.get(args.action)
    action: Action = "resolve" if ending else args.action
    request = Act(action, args.by, args.because, getattr(args, "until", None), ending)
    newest, before = "", store.alert(args.alert)
    if ending:
        commits = open_store(args).current().commits(before.alert.machine)
        newest = commits[-1].hash if commits else ""
    joined = store.same_step(before) if action in ("ack", "mute") else []
    others = ", ".join(str(one.id) for one in joined if one.state == before.state)
    alert = store.act(args.alert, request, newest)
    print(f"alert {alert.id} is {status(alert)}{f', with {others} of the same step' if others else ''}")
    return OK


def _notify(store: AlertStore, args: argparse.Namespace) -> int:
    from lockstep.alerts.database.alert_row import now_ms
    from lockstep.notify.deliver import deliver
    from lockstep.notify.outbox import Outbox
    from lockstep.notify.receivers import VARIABLE, receivers

    # Log records of this library would appear between our own lines.
    logging.getLogger("apprise").propagate = False
    to = receivers(os.environ)
    outbox = Outbox(store)
    store.sync(run_analysis(args)[1])
    outbox.write_alerts(to, _site(), now_ms())
    outbox.write_digest(to, _site(), now_ms())
    done = deliver(outbox, to)
    if not to:
        log.warning(
            f"{VARIABLE} is not set, so nobody is notified. Set it to Apprise addresses; docs/alerts.md has examples"
        )
    log.flush()  # asv ends a line only when the next line begins
    print(f"{counted(done.sent, 'message')} sent")
    for line in done.refused:
        log.error(line)
    return BAD_NEWS if done.refused else OK


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day; write a day such as 2027-01-31") from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _site() -> str:
    from lockstep.notify.receivers import SITE

    return os.environ.get(SITE, "")
