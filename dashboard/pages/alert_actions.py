"""Actions of people on an alert's page: acknowledge, mute, resolve, accept, reopen, comment."""

from __future__ import annotations

import datetime
from typing import Any

import dash_mantine_components as dmc
from dash import html

from dashboard.auth.request_checks import RequestSecurity
from lockstep.alerts.database.alert_row import today_utc
from lockstep.alerts.database.states_and_actions import ENDINGS, Act, LifecycleError
from lockstep.alerts.pages_service import AlertService
from lockstep.alerts.text import status
from lockstep.history.snapshot import Results

#: Default number of days of a mute.
MUTE_DAYS = 14

ACTIONS = {
    "ack": "Acknowledge",
    "mute": "Mute",
    "resolve": "Resolve",
    "new-baseline": "New baseline",
    "no-change": "No change",
    "reopen": "Reopen",
}

#: Actions that need a text.
WITH_REASON = ("mute", "new-baseline", "no-change", "comment")

_HINTS = {
    "ack": "Say that somebody works on the alert (key a)",
    "mute": "Send no messages about the alert until a day; needs a reason",
    "resolve": "The change is fixed; the alert reopens if later results contradict that",
    "new-baseline": "The new level is correct, and later changes are measured from it; needs a reason",
    "no-change": "Nothing changed, and the same step does not ring again; needs a reason",
    "reopen": "List the alert as open again; takes back what was said of it",
    "comment": "Add a comment to the alert's history",
}


def do(results: Results, service: AlertService, person: str, number: int, action: str, because: str, until: str) -> str:
    """Do the action of a button on alert ``number``, and return a confirmation for the alert's page.

    Raises:
        LifecycleError: the alert's state does not allow the action, or the reason or the date is missing.
        NoSuchAlert: no alert has this number.
    """
    because = because.strip()[:2000]
    if action == "comment":
        if not because:
            raise LifecycleError("the comment is empty: write the comment first")
        service.alerts.note(number, "comment", because, person)
        return "Comment added."
    if action not in ACTIONS:
        raise LifecycleError(f"{action!r} is not an action on alerts")
    try:
        last = datetime.date.fromisoformat(until.strip()) if action == "mute" else None
    except ValueError as error:
        raise LifecycleError(f"{until!r} is not a date; write a day such as 2027-01-31") from error
    commits = results.commits(service.alerts.alert(number).alert.machine)
    ending = ENDINGS.get(action)
    act = Act("resolve" if ending else action, person, because, last, ending)  # type: ignore[arg-type]
    alert = service.alerts.act(number, act, commits[-1].hash if commits else "")
    return f"Alert {alert.id} is {status(alert)}."


def form(security: RequestSecurity) -> Any:
    """Return the form with a known person's actions. Other people see how to become known; their form is only hidden,
    because callbacks need the elements of the form.
    """
    person = security.who
    labels = {**ACTIONS, "comment": "Comment"}
    buttons = [
        dmc.Button(
            text, id=f"alert-{name}", variant="default", size="compact-sm", n_clicks=0, disabled=name != "comment"
        )
        for name, text in labels.items()
    ]
    form = [
        dmc.TextInput(
            id="alert-because",
            label="Reason or comment",
            description="Mute, New baseline, No change and Comment need it.",
            className="because",
        ),
        dmc.DateInput(
            id="alert-until",
            label="Mute until the end of",
            value=str(today_utc() + datetime.timedelta(days=MUTE_DAYS)),
            valueFormat="YYYY-MM-DD",
            minDate=str(today_utc()),
            className="until",
        ),
        html.Div(
            [html.Span(button, title=_HINTS[name]) for name, button in zip(labels, buttons, strict=True)],
            className="acts",
        ),
    ]
    alive: Any = {"aria-live": "polite"}
    return html.Div(
        id="act",
        className="act",
        children=[
            html.Div(form, className="controls", hidden=not person),
            html.P(f"To act on this alert, {security.sign_in_hint}.", className="dim", hidden=bool(person)),
            html.P("", id="alert-said", className="said", **alive),
            html.P(["You are ", html.Span(person, className="strong"), "."], className="dim", hidden=not person),
        ],
    )
