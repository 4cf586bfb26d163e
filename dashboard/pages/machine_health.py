"""The state of a machine, from which readers judge its numbers: last report, clocks, noise, controls and toolchain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.compare.read_rows import rows_at
from lockstep.gpu.nvml import THROTTLING
from lockstep.history.model import STATES, Commit, Floats, Run
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered


@dataclass(frozen=True)
class Turn:
    """A commit at which the machine's toolchain or GPU changed, with the name, old and new value of each part."""

    commit: Commit
    changes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class MachineHealth:
    """The state of a machine apart from its kernels' numbers, at its newest commit; ``None`` where it is unknown.

    Attributes:
        runs, commits: the machine's runs and their commits, oldest first.
        reported_at: time of the newest number of any commit, ms since 1970; 0 if unknown.
        records: number of records that state clocks.
        throttled: number of these records that were throttled.
        reasons: the reasons for throttling, the most frequent first.
        sm_mhz: the median clock of these records.
        noise: median standard error of the logarithm of the latencies and plain values (0.001 is 0.1 %).
        mde: median of the smallest effects that one run can detect, as a share.
    """

    machine: str
    runs: Sequence[Run]
    commits: Sequence[Commit]
    series: int
    failed: int
    reported_at: int
    records: int
    throttled: int
    reasons: tuple[str, ...]
    sm_mhz: float | None
    noise: float | None
    mde: float | None

    @property
    def run(self) -> Run:
        """The newest run."""
        return self.runs[-1]


@remembered
def health_of(results: Results, machine: str) -> MachineHealth:
    """Return the state of a known machine, computed once per snapshot of the results."""
    runs, commits = results.runs_of(machine), results.commits(machine)
    rows = rows_at(results, machine, commits[-1].hash)
    # The costs of a record repeat its clocks.
    timed = rows.select(np.array([not rows.benchmark(place).cost for place in range(len(rows))], dtype=bool))
    clocked = timed.select(timed.column("sm_mhz") > 0)
    texts = (text.split("\n") for text in clocked.columns["clock_reasons"].tolist())
    reasons = [[reason for reason in row_reasons if reason in THROTTLING] for row_reasons in texts]
    # A row has an error of its latency or of its value.
    error, mde = np.fmax(timed.column("latency_error"), timed.column("value_error")), timed.column("mde")
    return MachineHealth(
        machine=machine,
        runs=runs,
        commits=commits,
        series=len(rows.series_keys.keys),
        failed=int((rows.columns["state"] == STATES.index("failed")).sum()),
        reported_at=max(run.measured_at for run in runs),
        records=len(clocked),
        throttled=sum(bool(row_reasons) for row_reasons in reasons),
        reasons=tuple(dict(Counter(reason for row_reasons in reasons for reason in row_reasons).most_common())),
        sm_mhz=_median(clocked.column("sm_mhz")),
        noise=_median(error[error > 0]),
        mde=_median(mde[mde > 0]),
    )


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def turns_of(runs: Sequence[Run], commits: Sequence[Commit]) -> list[Turn]:
    """Return the changes of a machine's toolchain and GPU, the newest first, from its runs and their commits."""
    turns = []
    boards = _boards(runs[0])
    for at in range(1, len(runs)):
        before, after = (_facts(run) for run in runs[at - 1 : at + 1])
        changes = [
            (name, before.get(name, ""), after.get(name, ""))
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
        # A host of several GPUs measures each commit on some of them. Only a GPU that never measured before is a turn.
        if new := _boards(runs[at]) - boards:
            changes.append(("GPU (UUID)", runs[at - 1].board, ", ".join(sorted(new))))
        boards |= new
        if changes:
            turns.append(Turn(commits[at], tuple(changes)))
    return turns[::-1]


def _boards(run: Run) -> set[str]:
    return {*run.board.split(", ")} - {""}


def _facts(run: Run) -> dict[str, str]:
    settings = {"clocks": run.clock_state, "protocol": str(run.protocol) if run.protocol else ""}
    return {name: value for name, value in {**run.toolchain, **settings}.items() if value}
