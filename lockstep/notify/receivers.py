"""Read the receivers of notifications from the environment, and only there because their addresses contain secrets.

``LOCKSTEP_NOTIFY`` and each variable that begins with ``LOCKSTEP_NOTIFY_`` hold one or more Apprise addresses
(https://github.com/caronc/apprise/wiki: Slack, mail, Teams, webhooks …), separated by spaces or newlines. Addresses in
``LOCKSTEP_NOTIFY_DIGEST…`` get one digest of the open alerts a day instead of one message for each alert.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.processes.exit_status import UsageError

VARIABLE = "LOCKSTEP_NOTIFY"
DIGEST = "LOCKSTEP_NOTIFY_DIGEST"

#: Address of the dashboard, for links in messages and feeds.
SITE = "LOCKSTEP_URL"


class ReceiverError(UsageError):
    """A variable holds an address that Apprise does not know. The message names the variable without its value."""


@dataclass(frozen=True)
class Receiver:
    """Someone who gets notifications, at one address.

    Attributes:
        name: the variable, with a number if it holds several addresses: ``LOCKSTEP_NOTIFY_TEAM``, ``LOCKSTEP_NOTIFY no.
            2``.
        url: the address in Apprise's form, which is secret.
        digest: whether the receiver gets a daily digest instead of a message about each alert.
    """

    name: str
    url: str = field(repr=False)
    digest: bool = False

    @property
    def key(self) -> str:
        """Return the key of the receiver in the outbox: 16 hex digits that do not reveal the address."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]


def receivers(environment: Mapping[str, str]) -> list[Receiver]:
    """Return the receivers in the environment, ordered by the variables' names, without repeated addresses.

    Raises:
        ReceiverError: Apprise does not know an address.
    """
    by_url: dict[str, Receiver] = {}
    for variable in sorted(environment):
        if variable != VARIABLE and not variable.startswith(f"{VARIABLE}_"):
            continue
        urls = environment[variable].split()
        for number, url in enumerate(urls, 1):
            name = f"{variable} no. {number}" if len(urls) > 1 else variable
            receiver = Receiver(name, url, variable.startswith(DIGEST))
            _check(receiver)
            by_url.setdefault(url, receiver)
    return list(by_url.values())


def _check(receiver: Receiver) -> None:
    # Imported here, because Apprise takes 0.3 s to import and most commands send no notification.
    import apprise

    if not apprise.Apprise().add(receiver.url):
        raise ReceiverError(
            f"{receiver.name} is not an address that Apprise knows; "
            "https://github.com/caronc/apprise/wiki lists the forms of addresses"
        )
