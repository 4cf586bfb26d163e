"""Return the commands that measure the change of an alert again, or the number of a series at a commit."""

from __future__ import annotations

from lockstep.alerts.model import Alert
from lockstep.history.model import Run
from lockstep.record.commands_to_repeat import Measured, between


def measured(run: Run) -> Measured:
    """Return the conditions under which a result file was measured, which a command has to repeat."""
    device = run.host.get("gpu", "") or run.strings.get("gpu", "") or run.strings.get("cpu", "")
    return Measured(run.commit, run.harness, run.clock_state, run.environment, device, run.toolchain)


def reproduce(alert: Alert) -> str:
    """Return the command that measures the change of the worst series again; "" if the alert has no such change."""
    known = alert.members and alert.before and alert.after
    return between(alert.members[0].series, alert.before, alert.after) if known else ""
