"""Measure both ends of an alert's range a second time before the alert is sent (``confirm`` in
thresholds.toml).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from lockstep.alerts.bisection.bisect import Expected, Inconclusive, Measurement, NotReproduced, SearchRange, both_ends
from lockstep.alerts.database.states_and_actions import DATA, Act
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import Alert

#: Milliseconds after which an alert is sent unconfirmed, because nobody has measured it again.
PATIENCE_MS = 86_400_000

#: Words in an alert's log. "confirmed": the second measurement shows the change. "unconfirmed": it could not decide.
Answer = Literal["confirmed", "unconfirmed"]


def can_be_confirmed(alert: Alert) -> bool:
    """Return whether ``lockstep bisect --ends`` can measure the worst series of an alert at both ends of its range.

    All other alerts are sent at once.
    """
    if alert.topic != "slower" or not alert.before or not alert.known:
        return False
    worst = alert.members[0]
    return worst.series.ours and worst.old is None and not worst.series.checked and not worst.series.cost


def confirm(
    alerts: AlertStore,
    number: int,
    span: SearchRange,
    measure: Callable[[str], Measurement],
    expected: Expected,
    newest: str = "",
) -> tuple[Answer | None, str]:
    """Measure both ends of an alert again, and log the answer; return the answer and a sentence.

    If the bad end is as good as the good end, the alert is closed as "not confirmed", and the answer is ``None``. It
    opens again if later commits still show the change. If the good end is as bad as the bad end, the change did not
    come with the commits, but it is there: the alert stays open.

    Args:
        newest: newest commit that the alert's machine has measured.
    """
    answer: Answer = "unconfirmed"
    try:
        good, bad = both_ends(span, measure, expected)
    except NotReproduced as error:
        sentence = str(error)
        if error.end == "bad":
            alerts.act(
                number, Act("resolve", DATA, f"a second measurement: {sentence}", ending="not confirmed"), newest
            )
            return None, sentence
    except Inconclusive as error:
        sentence = str(error)
    else:
        assert good.log is not None
        assert bad.log is not None
        answer = "confirmed"
        sentence = f"{span.good[:8]} measures {expected.text(good.log)} again, {span.bad[:8]} {expected.text(bad.log)}"
    alerts.note(number, answer, sentence)
    return answer, sentence
