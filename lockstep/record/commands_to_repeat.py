"""Make the commands that measure a recorded number again: in the working tree, at a commit, or between two commits."""

from __future__ import annotations

import re
import shlex

from lockstep.record.quantity import benchmark_name
from lockstep.record.series_name import SeriesName

#: Number of digits of a commit's hash in a command.
DIGITS = 12

#: Matches a clock lock in a clock state (``locked@1500``, ``base``) or at the end of a machine's name
#: (``h200-locked-1500``). If a folder has several machines, what differs follows the name in brackets.
_LOCK = re.compile(r"(?:^|-)(?:locked[@-](?P<mhz>\d+)|(?P<base>base))(?= \(|$)")

#: Matches the machine's name of exact results, see ``lockstep.asv.exact_results.machine_name``.
_COMPILED = re.compile(r"(?P<arch>sm_\d+)(?:-(?P<processors>\d+))?-compiled(?P<toolchain>(?:@\w+-[\w.+-]+)*)")


def in_working_tree(subject: SeriesName) -> str:
    """Return the command that measures a series in the working tree."""
    if subject.foreign:
        return command_line("asv", "run", "--python", "same", "--bench", selection(subject))
    if subject.exact:
        return _show(subject, ".")
    selected = ("--case", subject.case, "--variants", subject.variant, "--l2", subject.l2)
    costs = ("--costs", subject.cost) if subject.cost else ()
    return command_line("lockstep", "measure", subject.suite, *selected, *costs)


def at_commit(subject: SeriesName, commit: str) -> str:
    """Return the command that measures a series at a commit, prints the number and stores nothing.

    As in a history, the code under test comes from the commit and the benchmark definition from the working tree.
    """
    if subject.exact:
        return _show(subject, commit[:DIGITS])
    verb = "asv" if subject.foreign else "lockstep"
    return command_line(verb, "run", f"{commit[:DIGITS]}^!", "--dry-run", "--bench", selection(subject))


def between(subject: SeriesName, good: str, bad: str) -> str:
    """Return the command that measures how a series changes from one commit to another, both in one process.

    For another project's benchmark, return asv's command, which measures the commits one after the other.
    """
    ends = good[:DIGITS], bad[:DIGITS]
    if subject.foreign:
        return command_line("asv", "continuous", *ends, "--bench", selection(subject))
    if subject.exact:
        toolchain = _toolchain(subject)
        toolchains = ("--toolchain", toolchain, toolchain) if toolchain else ()
        return command_line(
            "lockstep", "code", "diff", *ends, "--family", subject.suite, *_target(subject), *toolchains
        )
    return gate(subject, *ends)


def gate(subject: SeriesName, base: str, head: str, clock_state: str = "") -> str:
    """Return the ``lockstep gate`` command that compares base and head at one case.

    Args:
        subject: the variant, case and cache state.
        base, head: git's names of the commits; "." is the working tree.
        clock_state: clock state as in the provenance; "" to take it from the machine's name.
    """
    case = ("--case", subject.case, "--variant", subject.variant, "--l2", subject.l2)
    lock_match = _LOCK.search(clock_state or subject.machine)
    lock = ("--lock", lock_match["mhz"] or lock_match["base"]) if lock_match else ()
    judged = subject.quantity if subject.checked else subject.cost
    costs = ("--costs", judged) if judged else ()
    options = ("--family", subject.suite, *case, *costs, *lock)
    return command_line("lockstep", "gate", "--base", base, "--head", head, *options)


def locked(subject: SeriesName, command: str, clock_state: str = "") -> tuple[str, ...]:
    """Return the lines that lock the clocks, run the command and reset the clocks.

    Return only the command if the series was measured with unlocked clocks.

    Args:
        command: the command that measures the series.
        clock_state: clock state as in the provenance; "" to take it from the machine's name.
    """
    lock_match = None if subject.exact or subject.foreign else _LOCK.search(clock_state or subject.machine)
    if lock_match is None:
        return (command,)
    lock = command_line("lockstep", "clocks", "lock", lock_match["mhz"] or "base")
    return lock, command, "lockstep clocks reset"


def selection(subject: SeriesName) -> str:
    """Return the value of asv's ``--bench`` that selects one series: a pattern for the benchmark's name and parameters.

    asv searches for the pattern in ``name('a', 'b')``. The pattern matches the quotes but contains none, because quotes
    would have to be escaped in a shell.
    """
    if subject.foreign:
        name = f"{subject.suite}.{subject.variant}" if subject.suite else subject.variant
        # The name of a parameter may be several words.
        values = [part.partition("=")[2] for part in re.split(r", (?=[\w ]+=)", subject.case) if part]
    else:
        # Select the latency if possible, because its measurement also gives everything else.
        has_benchmark = subject.cost or subject.quantity == "speedup"
        name = benchmark_name(subject.suite, subject.quantity if has_benchmark else "latency")
        values = [subject.variant, subject.case, subject.l2]
    parameters = ", ".join(rf"\W?{re.escape(value)}\W?" for value in values)
    return rf"^{re.escape(name)}\({parameters}\)$" if values else f"^{re.escape(name)}$"


def command_line(*words: str) -> str:
    """Return the command of these words, quoted and in one line.

    A name from a file cannot begin another command when a reader pastes the line.
    """
    return shlex.join(" ".join(word.split()) for word in words)


def _show(subject: SeriesName, ref: str) -> str:
    selected = ("--family", subject.suite, "--variant", subject.variant, "--case", subject.case)
    toolchain = _toolchain(subject)
    toolchain_options = ("--toolchain", toolchain) if toolchain else ()
    return command_line("lockstep", "code", "show", ref, *selected, *_target(subject), *toolchain_options)


def _target(subject: SeriesName) -> tuple[str, ...]:
    """Return the option for the compile target of exact results, read from the machine's name; () for other results."""
    match = _COMPILED.search(subject.machine)
    if match is None:
        return ()
    return "--target", f"{match['arch']}:{match['processors']}" if match["processors"] else match["arch"]


def _toolchain(subject: SeriesName) -> str:
    """Return the toolchain in the machine's name of exact results, "triton==3.6.0"; "" for the installed packages."""
    match = _COMPILED.search(subject.machine)
    parts = match["toolchain"].split("@")[1:] if match else []
    return ",".join(part.replace("-", "==", 1) for part in parts)
