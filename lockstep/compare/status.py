"""Where every series of a machine stands now, and what it did since an earlier commit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.alerts.analysis_files import Finding, MachineFindings
from lockstep.alerts.followed_series import name_of
from lockstep.alerts.steps import SeriesName
from lockstep.compare.beyond_noise import Look, beyond_noise
from lockstep.compare.missing_series import known_before, not_measured, not_new
from lockstep.compare.rows import Key, Row, key_of, rows_of, suite_of
from lockstep.compare.since_commit import Difference, beside_baseline, difference
from lockstep.compare.verdict import Verdict
from lockstep.history.display_names import natural
from lockstep.history.model import Commit
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.suite.thresholds import Thresholds

_WEEK_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class Standing:
    """One series.

    Attributes:
        row: its newest point.
        difference: from the commit that is compared with to that point.
        found: changes that the detector found after that commit and thinks worth telling, oldest first.
        stale: its suite was measured at a later commit, and it was not; or it is "not measured".
        commit: place of its newest point among the machine's commits.
        news: it failed, and did not at the commit that is compared with.
        noise: standard deviation of a point's logarithm from run to run; NaN unknown.
        beyond_noise: the change is larger than the noise explains, see ``lockstep.compare.beyond_noise``.
        absent: the machine cannot measure it, now and at the commit that is compared with.
    """

    row: Row
    difference: Difference
    found: tuple[Finding, ...]
    stale: bool
    commit: int
    news: bool = False
    noise: float = math.nan
    beyond_noise: bool = False
    absent: bool = False

    @property
    def worse(self) -> float | None:
        """Log of the factor by which it became worse: what the detector found, else the bare difference."""
        return math.fsum(one.size for one in self.found) if self.found else self.difference.worse

    @property
    def verdict(self) -> Verdict:
        """Called "slower" and "faster" only where the detector says so: of a thousand bare differences some are odd."""
        told = self.difference.verdict
        if self.row.state == "failed":
            return "failed"
        if told == "baseline moved":
            return told
        if self.found:
            return "slower" if (self.worse or 0.0) > 0 else "faster"
        return "unsure" if told in ("slower", "faster") else told


def reference(results: Results, machine: str, since: str, visit: int = 0) -> Commit | None:
    """The commit that the newest state is compared with; ``None`` for an unknown machine.

    Args:
        since: "all" (the first), a commit's hash, "visit", or "7d" (before the last seven days of results).
        visit: of "visit", ms since 1970; 0 never.

    Returns:
        the newest commit measured by then; the machine's first if there is none, or the hash is not one of its.
    """
    commits = results.commits(machine)
    if not commits or since == "all":
        return commits[0] if commits else None
    # "7d" is the beginning of one hash in 256.
    known = next((one for one in commits if since and one.hash.startswith(since)), None)
    if known and since not in ("visit", "7d"):
        return known
    measured = [run.measured_at or run.date for run in results.runs_of(machine)]
    until = visit if since == "visit" and visit else max(measured) - _WEEK_MS
    before = [commit for commit, at in zip(commits, measured, strict=True) if at <= until]
    return before[-1] if before else commits[0]


@remembered
def rows_now(results: Results, machine: str) -> Mapping[Key, tuple[Row, int]]:
    """Return the newest row of every series, and the place of its commit."""
    place = {commit.hash: at for at, commit in enumerate(results.commits(machine))}
    newest: dict[Key, tuple[Row, int]] = {}
    # Latency and speedup of a series may have come to an end at different commits.
    for row in rows_of(results, results.walk(machine)):
        at = place[row.commit]
        key = row.key
        if key not in newest or newest[key][1] < at:
            newest[key] = (row, at)
    return newest


@remembered
def rows_at(results: Results, machine: str, commit: str) -> Mapping[Key, Row]:
    """Rows of one commit."""
    commits = results.commits(machine)
    if commits and commit == commits[-1].hash:
        # The newest point of whatever was measured there: read once for both.
        return {key: row for key, (row, place) in rows_now(results, machine).items() if place == len(commits) - 1}
    return {row.key: row for row in rows_of(results, results.walk(machine, commit))}


@remembered
def keys_by_name(results: Results, machine: str) -> Mapping[SeriesName, Key]:
    """The page's name of each series that alerts name."""
    of = results.benchmarks
    series = results.series(machine=machine)
    return {name_of(one, of[one.benchmark]): key_of(one, suite_of(of[one.benchmark])) for one in series}


@remembered
def found_by_key(results: Results, machine: str, picture: MachineFindings | None) -> Mapping[Key, Sequence[Finding]]:
    """Changes worth telling, by series, oldest first."""
    told = [one for one in picture.found if not one.suppressed] if picture else []
    # Names are made for all series of a machine, so only where some are asked for.
    keys = keys_by_name(results, machine) if told else {}
    found: dict[Key, list[Finding]] = defaultdict(list)
    for one in told:
        if one.series in keys:
            found[keys[one.series]].append(one)
    return {key: sorted(some, key=lambda one: one.last) for key, some in found.items()}


@remembered
def noise_by_key(results: Results, machine: str, picture: MachineFindings | None) -> Mapping[Key, float]:
    """Return the run-to-run noise of each series whose noise is known (standard deviation of the logarithm)."""
    noise = {name: scale for name, scale in picture.noise.items() if math.isfinite(scale)} if picture else {}
    keys = keys_by_name(results, machine) if noise else {}
    return {keys[name]: scale for name, scale in noise.items() if name in keys}


@remembered
def standings(
    results: Results, machine: str, since: Commit | None, picture: MachineFindings | None, thresholds: Thresholds
) -> list[Standing]:
    """Every series of a machine, in the order of the store."""
    if since is None:
        return []
    before = rows_at(results, machine, since.hash)
    first = next(place for place, one in enumerate(results.commits(machine)) if one.hash == since.hash)
    found, noise = found_by_key(results, machine, picture), noise_by_key(results, machine, picture)
    now = rows_now(results, machine)
    newest: dict[str, int] = defaultdict(int)
    for row, place in now.values():
        newest[row.suite] = max(newest[row.suite], place)
    bare: list[Difference] = []
    looks = []
    last = len(results.commits(machine)) - 1
    missing = {key: row.version for key, (row, place) in now.items() if place > first and key not in before}
    skipped = known_before(results, machine, first, missing)
    for key, (row, place) in now.items():
        threshold = thresholds.of(row.suite, row.variant, row.case, row.l2)
        scale = noise.get(key, math.nan)
        told = difference(before.get(key), row, scale, threshold.min_effect, threshold.confidence)
        told = not_new(not_measured(told, place, first, last), key in skipped)
        bare.append(told)
        if math.isfinite(scale):
            looks.append(Look(row, told, threshold.confidence, place))
    both = sum(one.worse is not None for one in bare)
    beyond = beyond_noise(results, machine, first, looks, both)
    stood = []
    for (key, (row, place)), compared in zip(now.items(), bare, strict=True):
        old = before.get(key)
        if compared.verdict in ("slower", "faster"):
            of = row.baseline_key
            beside, _ = now.get(of, (None, 0))
            baseline = before.get(of), beside if beside and beside.commit == row.commit else None
            confidence = thresholds.of(row.suite, row.variant, row.case, row.l2).confidence
            compared = beside_baseline(compared, (old, row), baseline, noise.get(of, math.nan), confidence)
        later = tuple(one for one in found.get(key, ()) if one.last > first)
        news = row.state == "failed" and not (old and old.state == "failed")
        stood.append(
            Standing(
                row,
                compared,
                later,
                stale=place < newest[row.suite] or compared.verdict == "not measured",
                commit=place,
                news=news,
                noise=noise.get(key, math.nan),
                beyond_noise=compared.verdict != "baseline moved" and (bool(later) or key in beyond),
                absent=row.state == "na" and not (old and old.state != "na"),
            )
        )
    return stood


def cases_in_order(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Cases of each suite, small before large."""
    cases: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        cases[row.suite].add(row.case)
    return {suite: sorted(cases[suite], key=natural) for suite in sorted(cases)}
