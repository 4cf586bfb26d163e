"""Send the messages of the outbox through Apprise."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.alerts.database.alert_row import now_ms
from lockstep.notify.outbox import ATTEMPTS, Outbox, QueuedMessage
from lockstep.notify.receivers import Receiver


@dataclass(frozen=True)
class Delivered:
    """The result of sending: the number of messages sent, and a line for people about each message that was refused."""

    sent: int
    refused: tuple[str, ...]


#: Matches the errors of ``requests`` and ``http.client`` after which the message may have arrived nevertheless.
_MAY_HAVE_ARRIVED = re.compile(r"Read timed out|Remote end closed|Connection aborted|Connection reset|Broken pipe")


def deliver(outbox: Outbox, receivers: Sequence[Receiver]) -> Delivered:
    """Send every message that is due. A refused message is due again later; each attempt makes the wait longer."""
    by_key = {receiver.key: receiver for receiver in receivers}
    sent, refused = 0, []
    while queued := outbox.take(receivers, now_ms()):
        receiver = by_key[queued.receiver]
        accepted, output = _send(receiver, queued)
        if accepted:
            outbox.mark_sent(queued, now_ms())
            sent += 1
            continue
        error = _reason(output, receiver.url)
        if _MAY_HAVE_ARRIVED.search(output):
            outbox.mark_sent(queued, now_ms())
            refused.append(f"{receiver.name}: {queued.message.title}: it may not have arrived ({error})")
        else:
            outbox.mark_refused(queued, error, now_ms())
            end = "given up" if queued.attempts >= ATTEMPTS else "it is sent again later"
            refused.append(f"{receiver.name}: {error} (attempt {queued.attempts}; {end})")
    return Delivered(sent, tuple(refused))


def _send(receiver: Receiver, queued: QueuedMessage) -> tuple[bool, str]:
    """Return whether the message was accepted, and Apprise's log."""
    # Imported here, because apprise is slow to import.
    import apprise

    sender = apprise.Apprise()
    sender.add(receiver.url)
    kind = apprise.NotifyType.WARNING if queued.message.severity == "warning" else apprise.NotifyType.INFO
    with apprise.LogCapture(level=logging.DEBUG, fmt="%(levelname)s %(message)s") as log:
        accepted = sender.notify(
            title=queued.message.title,
            body=queued.message.body,
            notify_type=kind,
            body_format=apprise.NotifyFormat.TEXT,
        )
        return bool(accepted), log.getvalue()


def _reason(output: str, url: str) -> str:
    """Return why a message was refused: Apprise's first warning, or a general text if there is no safe warning.

    A warning is safe if it quotes no part of the address, because the address may hold a password or a token.
    """
    line = next((line.partition(" ")[2].strip() for line in output.splitlines() if line.startswith("WARNING")), "")
    secrets = [part for part in re.split(r"[^\w.-]+", url) if len(part) >= 8]
    return line if line and not any(part in line for part in secrets) else "the receiver did not accept the message"
