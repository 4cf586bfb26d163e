"""Repeat the numbers of a commit that was timed, for a commit that gives the GPU the same work.

A point that repeats is no measurement: it has the estimate as its only sample. ``docs/measuring.md`` has the rules.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from lockstep.processes.git import Git
from lockstep.record.file import SUFFIX, RecordError, read_records
from lockstep.record.model import Clocks, Record
from lockstep.record.quantity import COSTS
from lockstep.suite.definition import PROTOCOL_VERSION

Key = tuple[str, str, str, str]

#: One of so many cases that could repeat, chosen by chance, is timed nevertheless.
SAMPLED = 50

#: Relative difference of two ratios that contradicts "the same work", if the intervals do not overlap. Of 494 series
#: whose kernels did not change, timed in two processes on one H200, 11 differ by .5 to 1.3 % with separate intervals,
#: and one, whose tuner chose other tiles, by 5 %.
CONTRADICTION = 0.015

#: How many commits time a work whose ratio differs from that of another work. The detector needs as many points at a
#: level before it reports a step (docs/detection.md).
CONFIRMED = 3

#: Costs that follow from the work of the GPU; the others depend on what the host does.
_OF_GPU = frozenset({"behind", "energy"})


@dataclass
class Timed:
    """The timed records of one machine, GPU and toolchain, of all commits.

    Attributes:
        limit: how often the numbers of one record are repeated.
        stopped: whether a measurement contradicted a repeat, so that this run repeats nothing more.
    """

    limit: int
    stopped: bool = False
    _records: dict[Key, list[tuple[str, Record]]] = field(default_factory=lambda: defaultdict(list))
    _repeated: dict[tuple[Key, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    _works: dict[tuple[Key, str], str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, host: Mapping[str, str], limit: int) -> Timed:
        """Return the records of a machine's results that this host measured under today's protocol."""
        timed = cls(limit)
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            try:
                provenance, records = read_records(path)
            except (RecordError, OSError):
                continue  # whoever measures this commit again reports what is wrong
            if provenance.protocol == PROTOCOL_VERSION:
                own = [record for record in records if dict(provenance.host_of(record)) == dict(host)]
                timed.add(provenance.commit, own)
        return timed

    def add(self, commit: str, records: Iterable[Record]) -> None:
        """Add the records of a commit."""
        for record in records:
            self._works[record.key, commit] = record.work
            if record.same_work_as:
                self._repeated[record.key, record.same_work_as].add(commit)
            elif record.state != "failed" and (record.sources or record.work):
                self._records[record.key].append((commit, record))

    def commits(self) -> set[str]:
        """Return the commits that have timed records."""
        return {commit for known in self._records.values() for commit, _ in known}

    def alike(self, key: Key, version: str, costs: Sequence[str]) -> Iterator[tuple[str, Record]]:
        """Yield the commits and records of a series whose numbers may be repeated once more."""
        for commit, record in self._records.get(key, ()):
            again = len(self._repeated[key, commit]) < self.limit
            if record.version == version and again and not lacks(record, costs):
                yield commit, record

    def work_at(self, key: Key, commit: str) -> str:
        """Return the digest of a series' work at a commit, timed there or repeated; "" if it is unknown."""
        return self._works.get((key, commit), "")

    def unconfirmed(self, key: Key, record: Record, distance: Callable[[str], int]) -> bool:
        """Return whether a record's work must be timed again, so that the detector can see how it differs.

        ``distance``: returns how far a commit is; the nearest measurement of another work counts.
        """
        alike = [pair for pair in self._records.get(key, ()) if pair[1].version == record.version]
        others = [pair for pair in alike if _work(pair[1]) != _work(record)]
        if len(alike) - len(others) >= CONFIRMED or not others:
            return False
        _, other = min(others, key=lambda pair: distance(pair[0]))
        return contradiction(other, record) != ""


def _work(record: Record) -> str:
    """Return what identifies a record's work, as far as it is known."""
    return record.work or record.sources


def lacks(record: Record, costs: Sequence[str]) -> bool:
    """Return whether the record's case was measured without one of these costs: it has neither the cost's number nor
    the note why there is none. A variant that launches no Triton kernel has neither for "compile".
    """
    return record.state == "ok" and any(
        f"no {cost}:" not in record.note and not set(COSTS[cost]) & set(record.costs)
        for cost in costs
        if cost != "compile"
    )


@dataclass(frozen=True)
class Work:
    """What is known of a case of the commit to measure.

    Attributes:
        sources: digest of the files of its suite; "" if unknown.
        works: digests of the work by variant; empty if they were not asked for.
    """

    sources: str
    works: Mapping[str, str] = field(default_factory=dict)


def repeatable(
    timed: Timed,
    keys: Sequence[Key],
    baseline: str,
    version: str,
    work: Work,
    distance: Callable[[str], int],
    costs: Sequence[str] = (),
) -> dict[Key, Record]:
    """Return the records that repeat the numbers of the nearest commit with the same work, for series of one case.

    Args:
        baseline: name of the suite's baseline; a ratio is repeated if the baseline's work is the same too.
        distance: returns how far a commit is from the commit to measure.
        costs: names of ``lockstep.record.quantity.COSTS`` that a record must have.
    """
    found: dict[Key, Record] = {}
    for key in keys:
        suite, variant, case, l2 = key
        known = sorted(timed.alike(key, version, costs), key=lambda pair: distance(pair[0]))
        for commit, record in known:
            by_files = work.sources != "" and record.sources == work.sources
            by_graph = set(costs) <= _OF_GPU and all(
                work.works.get(name, "") != "" and timed.work_at((suite, name, case, l2), commit) == work.works[name]
                for name in (variant, baseline)
            )
            if (by_files or by_graph) and not timed.unconfirmed(key, record, distance):
                found[key] = repeated(record, commit, work)
                break
    return found


def repeated(record: Record, commit: str, work: Work) -> Record:
    """Return a record that repeats the numbers of ``record``, which was timed at ``commit``."""
    return replace(
        record,
        sources=work.sources,
        work=work.works.get(record.variant, record.work),
        same_work_as=commit,
        latency_samples=(record.latency.value,) if record.latency else (),
        speedup_samples=(record.speedup.value,) if record.speedup else (),
        clocks=Clocks(),
        accuracy=None,
        code=None,
        # Of two records of a series, a merge keeps the later.
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        wall_s=0.0,
    )


def is_sampled(commit: str, suite: str, case: str, l2: str) -> bool:
    """Return whether a case that could repeat is timed nevertheless. Every run of a commit chooses the same cases."""
    return zlib.crc32(f"{commit} {suite} {case} {l2}".encode()) % SAMPLED == 0


def contradiction(stored: Record | None, new: Record) -> str:
    """Return how a new measurement contradicts the record that would have been repeated; "" if it does not."""
    if stored is None:
        return ""
    before, after = stored.speedup, new.speedup
    if before is None or after is None:
        return "" if stored.state == new.state else f"it was {stored.state} and is {new.state}"
    change = after.value / before.value - 1
    overlap = before.low <= after.high and after.low <= before.high
    return "" if overlap or abs(math.log1p(change)) <= CONTRADICTION else f"its speedup changed by {change:+.2%}"


def distances(folder: Path, commit: str, others: Iterable[str]) -> Callable[[str], int]:
    """Return a function that says how far a commit is from ``commit`` in git's topological order.

    ``folder``: a checkout of the repository. Commits that it does not know are the farthest.
    """
    git = Git(folder)
    rows = git.try_lines("cat-file", "--batch-check", given=[commit, *others]) or ()
    known = [row.split()[0] for row in rows if not row.endswith("missing")]
    order = {name: place for place, name in enumerate(git.try_lines("rev-list", "--topo-order", *known) or ())}
    here = order.get(commit, 0)
    return lambda other: abs(order[other] - here) if other in order else len(order)
