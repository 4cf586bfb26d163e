"""What a run of the gate compares, with all settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.gpu.nvml import Target
from lockstep.suite.definition import Suite
from lockstep.suite.thresholds import Thresholds


def unfit_machine(machine: Mapping[str, str], need_gpu: bool, need_lock: bool) -> str:
    """Return why a machine, whose facts include ``device`` and ``clock_state``, may give no verdict; "" if it may."""
    if need_gpu and machine["device"] == "cpu":
        return "there is no GPU, and --require-gpu asks for one"
    clocks = machine["clock_state"]
    if need_lock and not clocks.startswith(("locked", "base")):
        return f"clocks are {clocks}, but --require-locked asks for locked clocks (lockstep clocks lock, or --lock)"
    return ""


@dataclass(frozen=True)
class Request:
    """The versions and cases to compare, with all settings.

    Attributes:
        repository: folder of the packages, in the git repository that has base and head.
        benchmark_dir: folder of the current suites, with which both versions are measured.
        packages: top-level packages under test.
        base, head: versions; "." is the working tree.
        cases: labels by suite; ``None`` for all cases of a suite.
        variants: names of the variants; empty for all.
        l2: a cache state, or "both".
        costs: costs to judge besides the latency (``lockstep.gate.model.COSTS``), by suite.
        min_effect: smallest change that counts; ``None`` to use the thresholds.
        about: hashes and subject lines of head's commits, and pull requests ("#123"). An ``[[accept]]`` entry of
            thresholds.toml that names one of them may accept a slowdown. ``run`` adds the commits.
        budget_s: seconds for measuring. Before that, comparing the code may take as long, and at least a minute.
        silence_s: seconds without an event after which a worker is killed.
        seed: seed of buffers, order and the A/A control.
        measure_all: whether to measure unchanged cases as well.
        need_gpu, need_lock: whether to give no verdict without a GPU, or without locked clocks.
        lock: clocks to lock during the run; ``None`` leaves them unchanged.
        quick: whether epochs are short: they find errors, but their times are inaccurate.
        tuned: file of the choices of tuners; ``None`` to hold choices for the life of each process.
        retune: whether the tuners of base and head choose for themselves.
    """

    repository: Path
    benchmark_dir: Path
    packages: tuple[str, ...]
    base: str
    head: str
    suites: Mapping[str, Suite]
    cases: Mapping[str, Sequence[str] | None]
    variants: tuple[str, ...]
    l2: str
    thresholds: Thresholds
    min_effect: float | None
    about: tuple[str, ...]
    budget_s: float
    silence_s: float
    seed: int
    measure_all: bool = False
    need_gpu: bool = False
    need_lock: bool = False
    lock: Target | None = None
    quick: bool = False
    tuned: Path | None = None
    retune: bool = False
    costs: Mapping[str, Sequence[str]] = field(default_factory=dict)
