"""The kernels' newest records and their targets, as a Markdown page."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from lockstep.processes.exit_status import UsageError
from lockstep.processes.trouble import reason_of
from lockstep.record.file import SUFFIX, RecordError, read_records, result_path
from lockstep.record.model import Estimate, Provenance, Record
from lockstep.suite.definition import Suite
from tools.scoreboard.cells import L2, SHOWN, line, micro, number, over, ratio_text
from tools.scoreboard.costs import costs_table
from tools.scoreboard.rivals import rivals_table


class TargetError(UsageError):
    """The file of targets cannot be read. The message names the file, the suite and the mistake."""


@dataclass(frozen=True)
class Target:
    """The speed that some cases of a suite should reach.

    Attributes:
        cases: the cases to which the target applies: a case label, with "|" between alternatives and "*" for any value.
        at_least, stretch: target and stretch target, as a ratio to the baseline or to the variant ``against``.
        geomean: ratio for the geometric mean over the cases.
        headline: the result that the source reported.
    """

    cases: str
    at_least: float | None = None
    stretch: float | None = None
    geomean: float | None = None
    against: str = ""
    headline: str = ""

    def covers(self, label: str) -> bool:
        """Return whether the target applies to the case of this label."""
        patterns, parts = self.cases.split(","), label.split(",")
        return len(patterns) == len(parts) and all(map(_matches, patterns, parts))


@dataclass(frozen=True)
class Targets:
    """One suite's targets, the source of their headlines, such as an issue, a PR or a measurement, and its rivals.

    Attributes:
        rivals: what a user would install instead: a text for each variant, with host versions in braces.
    """

    source: str = ""
    targets: tuple[Target, ...] = ()
    rivals: Mapping[str, str] = field(default_factory=dict)

    def of(self, label: str, against: str = "") -> Target:
        """Return the first target that applies to a case; a target without numbers if there is none."""
        return next(
            (target for target in self.targets if target.against == against and target.covers(label)), Target(label)
        )


@dataclass(frozen=True)
class Measured:
    """The newest records of one case by variant, and the conditions under which they were measured."""

    provenance: Provenance
    records: Mapping[str, Record]


@dataclass
class Recorded:
    """The records of a machine by suite and case, each from the newest commit that has the case.

    Attributes:
        machine: asv's name of the machine.
        newest: provenance of the newest commit.
        cases: the measurement of each (suite, case label).
        costs: of each (suite, case label), the newest measurement in which the shown variant has a cost.
        rivals: of each (suite, case label), the measurement beside the rivals.
    """

    machine: str
    newest: Provenance
    cases: dict[tuple[str, str], Measured] = field(default_factory=dict)
    costs: dict[tuple[str, str], Measured] = field(default_factory=dict)
    rivals: dict[tuple[str, str], Measured] = field(default_factory=dict)


def read_targets(path: Path) -> dict[str, Targets]:
    """Read the file of targets, such as ``benchmarks/targets.toml``, and return the targets by suite.

    Raises:
        TargetError: the file is not TOML, or has an unknown key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TargetError(f"{path} cannot be read: {reason_of(error)}") from error
    targets = {}
    for suite, entry in content.items():
        try:
            targets[suite] = Targets(
                entry.get("source", ""),
                tuple(Target(**target) for target in entry.get("targets", ())),
                dict(entry.get("rivals", {})),
            )
        except (TypeError, AttributeError) as error:
            raise TargetError(f"{path}, [{suite}]: the targets cannot be read: {error}") from error
    return targets


def read_newest(machine: Path, rivals: Path | None = None) -> Recorded:
    """Read the newest record of every case, by the commits' dates: older commits may have been measured later.

    Args:
        machine: asv's folder of results of a machine.
        rivals: file of records that were measured beside rivals.

    Raises:
        RecordError: there is no record, or a file cannot be read.
    """
    dated = []
    for path in machine.glob(f"*{SUFFIX}"):
        provenance, records = read_records(path)
        result = result_path(path)
        dated.append((_date(result) if result.is_file() else 0, provenance, records))
    if not dated:
        raise RecordError(f"{machine} has no records (*{SUFFIX}): measure with `lockstep run`, or name another machine")
    dated.sort(key=lambda pair: (pair[0], pair[1].commit))
    recorded = Recorded(machine.name, dated[-1][1])
    for _, provenance, records in dated:
        for key, measured in _cases(provenance, records):
            recorded.cases[key] = measured
            if measured.records[SHOWN].costs:
                recorded.costs[key] = measured
    if rivals is not None and rivals.is_file():
        recorded.rivals = dict(_cases(*read_records(rivals)))
    return recorded


def _cases(provenance: Provenance, records: Iterable[Record]) -> Iterator[tuple[tuple[str, str], Measured]]:
    """Yield the measurement of each (suite, case label) that has the shown variant."""
    cases: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        if record.l2 == L2:
            cases.setdefault((record.suite, record.case), {})[record.variant] = record
    for key, measured in cases.items():
        if SHOWN in measured and measured[SHOWN].state == "ok":
            yield key, Measured(provenance, measured)


def _date(result: Path) -> int:
    """Return the commit's date in an asv result file, in ms since 1970."""
    try:
        return int(json.loads(result.read_text(encoding="utf-8"))["date"])
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{result} is not a result file of asv: {error!r}") from error


def page(recorded: Recorded, suites: Iterable[Suite], targets: Mapping[str, Targets], command: str) -> str:
    """Return the page as Markdown. The same input gives the same text.

    Args:
        suites: the suites in the order of their sections; they give the order of the cases.
        command: the command that makes the page, which the page names.
    """
    lines = [*_head(recorded, command), ""]
    for suite in suites:
        lines += _section(suite, recorded, targets.get(suite.name, Targets()))
    return "\n".join(lines).rstrip() + "\n"


def _head(recorded: Recorded, command: str) -> Iterator[str]:
    newest, host = recorded.newest, recorded.newest.host
    copy, product = (newest.controls.get(name, {}).get("rate") for name in ("copy", "matmul"))
    tools = ", ".join(f"{name} {host[name]}" for name in ("torch", "triton", "cuda", "python") if host.get(name))
    yield "# The kernels: measured times beside their targets"
    yield ""
    yield f"Made by `{command}` from `results/{recorded.machine}`; do not edit."
    yield ""
    yield f"- {host.get('gpu') or host.get('cpu', 'unknown')}, driver {host.get('driver') or 'unknown'}, {tools}"
    yield f"- Clocks {newest.clock_state}, {L2} L2, protocol {newest.protocol}"
    yield f"- Commit {newest.commit[:8]}, recorded {newest.recorded_at[:10]}; a case from an older commit names it"
    if isinstance(copy, float) and isinstance(product, float):
        yield "- Floor: the time for the task's bytes at the fastest copy's rate, or for its operations at the fastest"
        yield "  matrix product's, whichever is longer (both rates from the same run). The newest run's median rates:"
        yield f"  {copy / 1e12:.2f} TB/s, {product / 1e12:.0f} TFLOP/s"
    yield ""
    yield "Ratios are the baseline's time over ours, paired in one run, with their 95 % interval, each time normalised"
    yield "to its series' reference clock. Under a power cap the quotient of the times in the table differs from the"
    yield "ratio by up to some percent. In brackets: the stretch target. ≈ marks a ratio below a target that lies in"
    yield "the interval."
    yield ""
    if recorded.costs:
        yield "A suite's second table has the costs of a call (docs/measuring.md): the time behind a fixed kernel that"
        yield "lets nothing start early, the host's time with the GPU busy, and the board's energy with its idle power."
        yield "Both ratios of a row are of one measurement. — marks a cost that was not recorded."
    else:
        yield "No cost besides the latency is recorded yet: `lockstep run --costs` records them."


def _section(suite: Suite, recorded: Recorded, targets: Targets) -> Iterator[str]:
    """Yield the lines of a suite's section; none if no case is recorded, so a new family does not change the page."""

    def of_suite(cases: Mapping[tuple[str, str], Measured]) -> list[tuple[str, Measured]]:
        found = ((case.label, cases.get((suite.name, case.label))) for case in suite.cases)
        return [(label, entry) for label, entry in found if entry is not None]

    measured = of_suite(recorded.cases)
    if not measured:
        return
    yield f"## `{suite.name}`: `{SHOWN}` against `{suite.baseline}`"
    yield ""
    if targets.source:
        yield f"Headline: {targets.source}."
        yield ""
    yield f"| case | {suite.baseline} µs | {SHOWN} µs | ratio | floor µs | of floor | headline | target | met |"
    yield "|---|---:|---:|---|---:|---:|---|---|---|"
    for label, entry in measured:
        record, target = entry.records[SHOWN], targets.of(label)
        times = micro(entry.records.get(suite.baseline)), micro(record), ratio_text(record.speedup)
        share = f"{record.floor_s / record.latency.value:.0%}" if record.floor_s and record.latency else ""
        floor = number(record.floor_s), share, target.headline
        yield line(_case(label, entry, recorded), *times, *floor, *_judged(target, record.speedup))
    yield ""
    costs = [(_case(label, entry, recorded), entry.records) for label, entry in of_suite(recorded.costs)]
    yield from costs_table(costs, suite.baseline)
    beside = [(label, entry.provenance, entry.records) for label, entry in of_suite(recorded.rivals)]
    yield from rivals_table(beside, suite.baseline, targets.rivals)
    yield from _geomeans(measured, targets)
    for against in dict.fromkeys(target.against for target in targets.targets if target.against):
        yield from _against(against, measured, targets)
    missing = len(suite.cases) - len(measured)
    if missing:
        yield f"{missing} of {len(suite.cases)} cases are not recorded."
        yield ""


def _against(against: str, measured: Sequence[tuple[str, Measured]], targets: Targets) -> Iterator[str]:
    yield f"Against `{against}` (from the two ratios to the baseline, intervals added in squares):"
    yield ""
    yield f"| case | {against} µs | {SHOWN} µs | ratio | target | met |"
    yield "|---|---:|---:|---|---|---|"
    for label, entry in measured:
        rival, target = entry.records.get(against), targets.of(label, against)
        if rival is not None and rival.state == "ok" and target.at_least is not None:
            ours = entry.records[SHOWN]
            ratio = over(ours.speedup, rival.speedup)
            yield line(label, micro(rival), micro(ours), ratio_text(ratio), *_judged(target, ratio))
    yield ""


def _geomeans(measured: Sequence[tuple[str, Measured]], targets: Targets) -> Iterator[str]:
    for target in targets.targets:
        ratios = [entry.records[SHOWN].speedup for label, entry in measured if target.covers(label)]
        values = [ratio.value for ratio in ratios if ratio is not None]
        if target.geomean is not None and values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            met = "met" if mean >= target.geomean else "not met"
            yield f"Geometric mean over {len(values)} cases: {mean:.3f}×, target {target.geomean:g}×: {met}."
            yield ""


def _case(label: str, measured: Measured, recorded: Recorded) -> str:
    older = measured.provenance.commit != recorded.newest.commit
    return f"{label} ({measured.provenance.commit[:8]})" if older else label


def _judged(target: Target, ratio: Estimate | None) -> tuple[str, str]:
    """Return a target, and whether a ratio meets it."""
    if target.at_least is None:
        return "", ""
    text = f"{target.at_least:g}×" + (f" ({target.stretch:g}×)" if target.stretch else "")
    if ratio is None:
        return text, ""
    if target.stretch and ratio.value >= target.stretch:
        return text, "stretch"
    if ratio.value >= target.at_least:
        return text, "yes"
    return text, "≈" if ratio.high >= target.at_least else f"no, {1 - ratio.value / target.at_least:.1%} short"


def _matches(pattern: str, part: str) -> bool:
    name, _, values = pattern.partition("=")
    axis, _, value = part.partition("=")
    return name == axis and any(fnmatchcase(value, choice) for choice in values.split("|"))


def machines_of(results: Path) -> list[Path]:
    """Return the folders of machines with records of this project: GPUs first, then those with most records."""
    lines = Counter[Path]()
    for path in results.glob(f"*/*{SUFFIX}"):
        lines[path.parent] += path.read_bytes().count(b"\n")
    # A machine of `lockstep code history`, sm_90-compiled or sm_90-compiled@triton-3.6.0, measures no time.
    untimed = {path for path in lines if path.name.split("@")[0].endswith(("-cpu", "-compiled"))}
    return sorted(lines, key=lambda path: (path in untimed, -lines[path], path.name))
