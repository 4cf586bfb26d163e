"""Commands that measure a recorded number again: in the working tree, at a commit, or between two commits."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.record.quantity import COST_QUANTITIES, EXACT, benchmark_name, cost_of

#: Digits of a commit's hash in a command.
_DIGITS = 12

#: A lock in a clock state (``locked@1500+mem3201``, ``base``) or at the end of a machine's name (``h200-locked-1500``).
#: A machine of a folder with several has what differs behind its name, in brackets.
_LOCK = re.compile(r"(?:^|-)(?:locked[@-](?P<mhz>\d+)|(?P<base>base))(?:[+-]mem(?P<memory>\d+))?(?= \(|$)")

#: The machine of exact results, see ``lockstep.asv.exact_results.machine_name``.
_COMPILED = re.compile(r"(?P<arch>sm_\d+)(?:-(?P<processors>\d+))?-compiled")

#: Facts of a run that a reader who measures again must match, in this order.
_TOOLS = ("python", "torch", "triton", "cuda", "driver", "ptxas")


@dataclass(frozen=True)
class Subject:
    """A series, as commands name it.

    Attributes:
        suite: a suite of ours; of another project's benchmark everything before the last part of its name.
        variant: a variant; of another project's benchmark the last part of its name.
        case: label of the case; of another project's benchmark its parameters, ``size=100, dtype=float32``.
        l2: cache state; "" of exact quantities and of other projects' benchmarks.
        quantity: one of ``lockstep.record.quantity``, or another project's unit.
        machine: name of the machine. It ends with the clock state where Lockstep measured.
    """

    suite: str
    variant: str
    case: str
    l2: str
    quantity: str
    machine: str = ""

    @property
    def exact(self) -> bool:
        """Whether a compiler gives the number."""
        return not self.l2 and self.quantity in EXACT

    @property
    def cost(self) -> bool:
        """Whether it is measured besides latency and speedup."""
        return bool(self.l2) and self.quantity in COST_QUANTITIES

    @property
    def foreign(self) -> bool:
        """Whether the benchmark is not one of a Lockstep suite."""
        return not self.l2 and not self.exact


@dataclass(frozen=True)
class Measured:
    """What a number of a commit was measured with.

    Attributes:
        commit: full hash of the code under test.
        harness: commit of the benchmark definitions, with "+dirty" if they had changes; "" unknown.
        clock_state: as in the provenance; "" leaves it to the machine's name.
        environment: asv's name of it.
        device: GPU or processor.
        toolchain: versions by name, requirements of an asv environment included.
    """

    commit: str
    harness: str = ""
    clock_state: str = ""
    environment: str = ""
    device: str = ""
    toolchain: Mapping[str, str] = field(default_factory=dict)


def here(subject: Subject) -> str:
    """Return the command that measures a series in the working tree."""
    if subject.foreign:
        return _join("asv", "run", "--python", "same", "--bench", selection(subject))
    if subject.exact:
        return _show(subject, ".")
    chosen = ("--case", subject.case, "--variants", subject.variant, "--l2", subject.l2)
    costs = ("--costs", cost_of(subject.quantity)) if subject.cost else ()
    return _join("lockstep", "measure", subject.suite, *chosen, *costs)


def at(subject: Subject, commit: str) -> str:
    """Return the command that measures a series at a commit, prints the number and stores nothing.

    The code under test comes from the commit, the benchmark definition from the working tree, as in a history.
    """
    if subject.exact:
        return _show(subject, commit[:_DIGITS])
    verb = "asv" if subject.foreign else "lockstep"
    return _join(verb, "run", f"{commit[:_DIGITS]}^!", "--dry-run", "--bench", selection(subject))


def between(subject: Subject, good: str, bad: str) -> str:
    """Return the command that measures how a series changes from one commit to another, both in one process.

    Of another project's benchmark it is asv's command, which measures the two one after the other. Of a cost, which the
    gate does not measure, it is the command that measures every commit from one to the other.
    """
    ends = good[:_DIGITS], bad[:_DIGITS]
    if subject.foreign:
        return _join("asv", "continuous", *ends, "--bench", selection(subject))
    if subject.exact:
        return _join("lockstep", "code", "diff", *ends, "--family", subject.suite, *_target(subject))
    if subject.cost:
        return _join("lockstep", "run", f"{ends[0]}^..{ends[1]}", "--dry-run", "--bench", selection(subject))
    return gate(subject, *ends)


def gate(subject: Subject, base: str, head: str, clock_state: str = "") -> str:
    """Return the command that judges one case of a change.

    Args:
        subject: the variant, case and cache state.
        base, head: as git names them; "." is the working tree.
        clock_state: as in the provenance; "" leaves it to the machine's name.
    """
    case = ("--case", subject.case, "--variant", subject.variant, "--l2", subject.l2)
    found = _LOCK.search(clock_state or subject.machine)
    lock = ("--lock", found["mhz"] or found["base"]) if found else ()
    return _join("lockstep", "gate", "--base", base, "--head", head, "--family", subject.suite, *case, *lock)


def script(subject: Subject, measured: Measured) -> tuple[str, ...]:
    """Return the lines that measure a number of a commit again, from any checkout of its repository.

    They check out the benchmark definitions that measured it, and lock the clocks if they were locked. Comments name
    what must be installed.
    """
    lines = [f"# measured with {text}"] if (text := installed(measured)) else []
    harness, _, dirty = measured.harness.partition("+")
    if harness:
        lines += ["# the benchmark definitions had uncommitted changes, which no checkout has"] if dirty else []
        folder = f"/tmp/definitions-{harness[:_DIGITS]}"
        lines.append(_join("git", "worktree", "add", "--detach", folder, harness[:_DIGITS]))
        # asv.conf.json may lie below the root of the repository.
        lines.append(f'cd {shlex.quote(folder)}/"$(git rev-parse --show-prefix)"')
    return (*lines, *locked(subject, at(subject, measured.commit), measured.clock_state))


def locked(subject: Subject, command: str, clock_state: str = "") -> tuple[str, ...]:
    """Return a command for a series between a lock of the clocks and its end; alone if its clocks were not locked.

    Args:
        subject: the series.
        command: that measures it.
        clock_state: as in the provenance; "" leaves it to the machine's name.
    """
    found = None if subject.exact or subject.foreign else _LOCK.search(clock_state or subject.machine)
    if found is None:
        return (command,)
    memory = ("--memory", found["memory"]) if found["memory"] else ()
    lock = _join("lockstep", "clocks", "lock", found["mhz"] or "base", *memory)
    return lock, command, "lockstep clocks reset"


def installed(measured: Measured) -> str:
    """Return what it was measured with: ``NVIDIA H200; torch 2.11.0, triton 3.6.0; clocks unlocked``."""
    known = {name: version for name, version in measured.toolchain.items() if version}
    ordered = [name for name in _TOOLS if name in known] + sorted(known.keys() - set(_TOOLS))
    versions = ", ".join(f"{name} {known[name]}" for name in ordered)
    clocks = f"clocks {measured.clock_state}" if measured.clock_state not in ("", "cpu", "compiled") else ""
    environment = f"environment {measured.environment}" if measured.environment not in ("", "lockstep") else ""
    # One line, whatever a file says: the next line is a command.
    return " ".join("; ".join(part for part in (measured.device, versions, clocks, environment) if part).split())


def selection(subject: Subject) -> str:
    """Return asv's ``--bench`` for one series: a pattern of the benchmark's name and its parameters.

    asv searches ``name('a', 'b')``. The pattern matches quotes without having any, which a shell would want escaped.
    """
    if subject.foreign:
        name = f"{subject.suite}.{subject.variant}" if subject.suite else subject.variant
        values = [part.partition("=")[2] for part in re.split(r", (?=\w+=)", subject.case) if part]
    else:
        # What a measurement always gives besides comes with the latency.
        own = subject.cost or subject.quantity == "speedup"
        name = benchmark_name(subject.suite, subject.quantity if own else "latency")
        values = [subject.variant, subject.case, subject.l2]
    parameters = ", ".join(rf"\W?{re.escape(value)}\W?" for value in values)
    return rf"^{re.escape(name)}\({parameters}\)$" if values else f"^{re.escape(name)}$"


def _show(subject: Subject, ref: str) -> str:
    chosen = ("--family", subject.suite, "--variant", subject.variant, "--case", subject.case)
    return _join("lockstep", "code", "show", ref, *chosen, *_target(subject))


def _target(subject: Subject) -> tuple[str, ...]:
    """Return the option for the target that a machine of exact results stands for."""
    found = _COMPILED.search(subject.machine)
    if found is None:
        return ()
    return "--target", f"{found['arch']}:{found['processors']}" if found["processors"] else found["arch"]


def _join(*words: str) -> str:
    # A reader pastes a command as one line, and a name from a file must not begin another.
    return shlex.join(" ".join(word.split()) for word in words)
