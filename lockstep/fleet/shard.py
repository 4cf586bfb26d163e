"""Divide the cases of suites among GPUs. A case keeps its GPU, because ratios of two GPUs differ by up to 3 %.

The owner of a case follows from the names of the GPUs and the suites alone: every shard finds it by itself. All
variants of a case belong to one shard, because they are timed in turn with the baseline.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lockstep.processes.exit_status import UsageError
from lockstep.record.quantity import QUANTITIES, benchmark_name
from lockstep.suite.definition import CACHE_STATES, Suite
from lockstep.suite.evaluate import in_history

#: Ends of the name of the folder that holds the folders of the shards, beside the results.
FOLDER_SUFFIX = "-shards"


class ShardError(UsageError):
    """A text does not name a shard. The message says what to write instead."""


@dataclass(frozen=True)
class Shard:
    """One GPU's part of a history.

    Attributes:
        place: place of the GPU in ``gpus``, from 1.
        gpus: UUIDs of all GPUs of the fleet, or the numbers "1", "2", … where the UUIDs are not known.
    """

    place: int
    gpus: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard of a text: "2/4", or "2/GPU-1f50…,GPU-739…" with the UUIDs of the fleet.

        Raises:
            ShardError: the text has another form.
        """
        place, slash, fleet = text.partition("/")
        gpus = fleet.split(",")
        if fleet.isdecimal() and 0 < int(fleet) < 10_000:
            gpus = [str(place) for place in range(1, int(fleet) + 1)]
        elif not all(gpu.startswith(("GPU-", "MIG-")) for gpu in gpus) or len(set(gpus)) < len(gpus):
            gpus = []
        if not slash or not place.isdecimal() or not 0 < int(place) <= len(gpus):
            raise ShardError(
                f"--shard {text!r}: write I/N, the shard I of N from 1 on (2/4), or I/UUID,UUID,… with the UUIDs of "
                "the fleet, which `nvidia-smi -L` lists"
            )
        return cls(int(place), tuple(gpus))

    @property
    def gpu(self) -> str:
        """Return the UUID of the shard's GPU, or its number where UUIDs are not known."""
        return self.gpus[self.place - 1]

    @property
    def uuid(self) -> str:
        """Return the UUID of the shard's GPU, or "" if the fleet is a number of GPUs."""
        return "" if self.gpu.isdecimal() else self.gpu

    @property
    def name(self) -> str:
        """Return the name of the shard's folder: "2-of-4", or the UUID of its GPU."""
        return self.uuid or f"{self.place}-of-{len(self.gpus)}"

    def __str__(self) -> str:
        fleet = ",".join(self.gpus) if self.uuid else str(len(self.gpus))
        return f"{self.place}/{fleet}"

    @cached_property
    def others(self) -> tuple[Shard, ...]:
        """Return all shards of the fleet, in the order of its GPUs."""
        return tuple(Shard(place, self.gpus) for place in range(1, len(self.gpus) + 1))

    def folder(self, results: Path) -> Path:
        """Return the folder that this shard alone writes, beside the results."""
        return results.with_name(results.name + FOLDER_SUFFIX) / self.name

    def cases(self, suites: Collection[Suite]) -> dict[str, list[str]]:
        """Return the labels of the cases that belong to this shard, by suite."""
        mine: dict[str, list[str]] = {}
        for (suite, case), gpu in owners(self.gpus, suites).items():
            if gpu == self.gpu:
                mine.setdefault(suite, []).append(case)
        return mine

    def patterns(self, suites: Sequence[Suite], chosen: Sequence[str] = ()) -> list[str]:
        """Return the patterns for asv that select the benchmarks of this shard.

        Benchmarks without a suite belong to the first shard.

        Args:
            chosen: patterns of ``--bench``, one of which must match too; all match if there are none.
        """
        mine = [
            rf"{_benchmarks(suite)}\('[^']*', (?:{'|'.join(re.escape(repr(case)) for case in cases)}), "
            for suite, cases in self.cases(suites).items()
        ]
        if self.place == 1:
            mine.append(f"(?!{'|'.join(_benchmarks(suite.name) for suite in suites)})" if suites else "")
        either = f"(?:{'|'.join(mine)})" if mine else "(?!)"
        return [f"(?s)^(?=.*(?:{pattern})){either}" for pattern in chosen] or [f"^{either}"]


def owners(gpus: Sequence[str], suites: Collection[Suite]) -> dict[tuple[str, str], str]:
    """Return the GPU that owns each case, by the names of suite and case.

    Each case goes to the GPU with the highest hash of GPU and case (rendezvous hashing), so that few cases move when a
    GPU joins or leaves. A GPU that has its share of the suite's series, or of all series so far, takes no more.
    """
    owner: dict[tuple[str, str], str] = {}
    for on_cpu in (False, True):  # a machine measures the cases of one kind of device
        total = dict.fromkeys(gpus, 0)
        for suite in sorted(suites, key=lambda suite: suite.name):
            labels = {case.label for case in suite.cases}
            weights = {case: many for case, many in series_by_case(suite).items() if (case not in labels) == on_cpu}
            load, share = dict.fromkeys(gpus, 0), sum(weights.values()) / len(gpus)
            share_of_all = share + sum(total.values()) / len(gpus)
            for case in sorted(weights, key=lambda case: (-weights[case], _hash(suite.name, case))):
                below = [gpu for gpu in gpus if load[gpu] < share]
                best = max(
                    [gpu for gpu in below if total[gpu] < share_of_all] or below,
                    key=lambda gpu: _hash(gpu, suite.name, case),
                )
                owner[suite.name, case] = best
                load[best] += weights[case]
                total[best] += weights[case]
    return owner


def followed_by(shards: Sequence[Shard], suites: Sequence[Suite]) -> dict[tuple[str, str], Shard]:
    """Return the shard that owns each case that a history measures, by the names of suite and case."""
    of_gpu = {shard.gpu: shard for shard in shards}
    owner = owners(list(of_gpu), suites)
    return {
        (suite.name, case.label): of_gpu[owner[suite.name, case.label]]
        for suite in suites
        for case in suite.cases
        if series_by_case(suite)[case.label] > 1
    }


def series_by_case(suite: Suite) -> Mapping[str, int]:
    """Return how many series a history measures at each case, and one more for starting the case."""
    return {
        case.label: 1 + sum(in_history(suite, name, case, l2) for name in suite.variants() for l2 in CACHE_STATES)
        for case in suite.all_cases
    }


def _benchmarks(suite: str) -> str:
    """Return a pattern for asv's names of the suite's benchmarks, up to their parameters."""
    return rf"(?:{'|'.join(re.escape(benchmark_name(suite, quantity)) for quantity in QUANTITIES)})(?=\()"


def _hash(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()
