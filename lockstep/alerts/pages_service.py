"""Give the dashboard's pages the stored alerts."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from lockstep.alerts.database.connection import StateError
from lockstep.alerts.database.listing import OpenAlerts
from lockstep.alerts.database.states_and_actions import State
from lockstep.alerts.database.store import AlertStore
from lockstep.alerts.model import Topic
from lockstep.processes.trouble import Trouble

T = TypeVar("T")

#: Maximum number of muted and doubted alerts whose changes are read; each takes 0.2 ms.
MOST_QUIET = 500

#: Seconds after a failure until the alert database is asked again.
_RETRY_S = 5.0


class LastAnswers:
    """Answers of the alert database, and its last answers while it cannot be used, for the reason in ``trouble``."""

    def __init__(self) -> None:
        self.trouble = Trouble()
        self._answers: dict[Hashable, object] = {}
        self._failed = -_RETRY_S

    def answer(self, question: Hashable, ask: Callable[[], T], nothing: T) -> T:
        """Return what ``ask`` returns, else its last answer to the ``question``, else ``nothing``."""
        if time.monotonic() - self._failed >= _RETRY_S:
            try:
                self._answers[question] = ask()
                self.trouble.end()
            except StateError as error:
                self._failed = time.monotonic()
                self.trouble.begin(f"alerts are not up to date, because {error}")
        return self._answers.get(question, nothing)  # type: ignore[return-value]


@dataclass(frozen=True)
class AlertService:
    """The alerts, also while their database fails.

    Attributes:
        site: public address of the dashboard, for links in messages; "" if unknown.
        last: the answers that stay while the database fails.
    """

    alerts: AlertStore
    site: str = ""
    last: LastAnswers = field(default_factory=LastAnswers)

    def version(self) -> int:
        """Return a number that grows with every change of an alert; the last one while the database fails."""
        return self.last.answer("version", self.alerts.version, 0)

    def open_on(self, machine: str, limit: int) -> OpenAlerts:
        """Return the open alerts of a machine, see ``AlertStore``; the last known ones while the database fails."""
        return self.last.answer((machine, limit), lambda: self.alerts.open_on(machine, limit), OpenAlerts((), {}, {}))

    def quiet_on(self, machine: str) -> frozenset[str]:
        """Return the keys of the changes of muted and doubted alerts; the last known ones while the database fails."""

        def ask() -> frozenset[str]:
            quiet = self.alerts.quiet_on(machine, MOST_QUIET)
            return frozenset(member.key for one in quiet for member in one.alert.members)

        return self.last.answer(("quiet", machine), ask, frozenset())

    def counts(self) -> dict[tuple[State, Topic], int]:
        """Return the number of alerts by state and topic; the last known ones while the database fails."""
        return self.last.answer("counts", self.alerts.counts, {})

    @property
    def trouble(self) -> str:
        """A notice for the pages if the alert database failed; otherwise ""."""
        text = self.last.trouble.text
        return f"{text[0].upper()}{text[1:]}." if text else ""
