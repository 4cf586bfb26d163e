"""Return the commands that measure the change of an alert again, or the number of a series at a commit."""

from __future__ import annotations

import shlex

from lockstep.alerts.model import Alert
from lockstep.history.model import Run
from lockstep.record.commands_to_repeat import DIGITS, at_commit, between, command_line, locked
from lockstep.record.series_name import SeriesName

#: The software that must be the same to measure a number again, in the order in which it is listed.
_TOOLS = ("python", "torch", "triton", "cuda", "driver", "ptxas")


def reproduce(alert: Alert) -> str:
    """Return the command that measures the change of the worst series again; "" if the alert has no such change."""
    known = alert.members and alert.before and alert.after
    return between(alert.members[0].series, alert.before, alert.after) if known else ""


def script(subject: SeriesName, run: Run) -> tuple[str, ...]:
    """Return the lines that measure a number of a commit again, from any checkout of its repository.

    The lines check out the original benchmark definitions, and lock the clocks if they were locked. Comments name the
    software to install.
    """
    lines = [f"# measured with {text}"] if (text := installed(run)) else []
    harness, _, dirty = run.harness.partition("+")
    if harness:
        lines += ["# the benchmark definitions had uncommitted changes, which no checkout has"] if dirty else []
        folder = f"/tmp/definitions-{harness[:DIGITS]}"
        lines.append(command_line("git", "worktree", "add", "--detach", folder, harness[:DIGITS]))
        # asv.conf.json may lie below the root of the repository.
        lines.append(f'cd {shlex.quote(folder)}/"$(git rev-parse --show-prefix)"')
    return (*lines, *locked(subject, at_commit(subject, run.commit), run.clock_state))


def installed(run: Run) -> str:
    """Return the conditions of a measurement: ``NVIDIA H200; torch 2.11.0, triton 3.6.0; clocks unlocked``."""
    device = run.host.get("gpu", "") or run.strings.get("gpu", "") or run.strings.get("cpu", "")
    known = {name: version for name, version in run.toolchain.items() if version}
    ordered = [name for name in _TOOLS if name in known] + sorted(known.keys() - set(_TOOLS))
    versions = ", ".join(f"{name} {known[name]}" for name in ordered)
    clocks = f"clocks {run.clock_state}" if run.clock_state not in ("", "cpu", "compiled") else ""
    environment = f"environment {run.environment}" if run.environment not in ("", "lockstep") else ""
    # Join everything into one line, even if a file contains line breaks, because the next line is a command.
    return " ".join("; ".join(part for part in (device, versions, clocks, environment) if part).split())
