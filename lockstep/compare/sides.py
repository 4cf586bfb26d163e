"""Two sides of a comparison, case by case: commits, machines, variants or toolchains, whatever differs between them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lockstep.alerts.code_change import code_evidence, same_code, same_kernels
from lockstep.compare.ratio_cause import Times, behind, called
from lockstep.compare.rows import key_of, suite_of
from lockstep.compare.verdict import UNKNOWN, Change, Verdict, changed, error_of, loudness
from lockstep.history.model import Benchmark, Point, Run
from lockstep.history.snapshot import Results
from lockstep.history.snapshot_cache import remembered
from lockstep.suite.thresholds import Threshold, Thresholds

#: "speedup": the time relative to the baseline beside it, far surer; "latency": the time itself.
Quantity = Literal["speedup", "latency"]

#: Suite, variant, case and cache state.
_Key = tuple[str, str, str, str]

_TOOLS = ("torch", "triton", "ptxas", "cuda", "driver", "python")


@dataclass(frozen=True)
class Side:
    """What is compared: a machine at a commit (full hash); ``variant`` "" is each one with itself."""

    machine: str
    commit: str
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """One case on both sides.

    Attributes:
        suite, case, l2: which.
        base_variant, head_variant: the same unless variants are compared.
        base, head: the numbers, in ``unit``; ``None`` where there is none.
        log: natural log of head's time over base's, relative to the baseline for "speedup"; more is slower;
            NaN unknown.
        error: its standard error; NaN unknown.
        verdict: by the thresholds of the series.
        why: what there is to know of a verdict besides the numbers.
        code: what differs in the machine code; "the same" where both are known and equal, "the kernels are the
            same" where that is all that is known, "" where nothing is.
        times: of a ratio that became slower or faster, what the two times behind it did; ``None`` unknown.
        unit: "seconds", or that of another project's benchmark.
    """

    suite: str
    case: str
    l2: str
    base_variant: str
    head_variant: str
    base: float | None
    head: float | None
    log: float
    error: float
    verdict: Verdict
    why: str = ""
    code: str = ""
    times: Times | None = None
    unit: str = "seconds"

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval of ``log``."""
        return Change(self.log, self.error).interval(0.95)[0]

    @property
    def high(self) -> float:
        """Upper end of it."""
        return Change(self.log, self.error).interval(0.95)[1]


@dataclass(frozen=True)
class Comparison:
    """All cases that both sides have, and how many only one has or cannot be compared.

    Attributes:
        pairs: what failed first, then what became slower, and so on; in each the largest change first.
        other_ruler: cases that were measured with another version of the ruler on each side.
        one_sided: cases that only one side has.
    """

    pairs: tuple[Pair, ...]
    other_ruler: int
    one_sided: int

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def geomean(self) -> float:
        """Mean of ``log`` over the pairs that have one; NaN if none has."""
        logs = [pair.log for pair in self.pairs if math.isfinite(pair.log)]
        return math.fsum(logs) / len(logs) if logs else math.nan

    @property
    def counts(self) -> Counter[Verdict]:
        """How many of each verdict."""
        return Counter(pair.verdict for pair in self.pairs)


@remembered
def compare(
    results: Results, base: Side, head: Side, quantity: Quantity, thresholds: Thresholds, suite: str = "", l2: str = ""
) -> Comparison:
    """Compare two sides.

    Args:
        results: where they are from.
        base, head: the sides.
        quantity: of our suites; other projects' numbers are compared as they are.
        thresholds: what counts as a change.
        suite, l2: only of these; "" all.
    """
    across = bool(base.variant and head.variant)
    # The points are not kept: of a long comparison they take far more memory than what it says.
    points = {place: _points(results, *place) for place in {(side.machine, side.commit) for side in (base, head)}}
    ours, theirs = (_by_key(results, points[side.machine, side.commit], side.variant, across) for side in (base, head))
    baselines = [_baselines(results, points[side.machine, side.commit]) for side in (base, head)]
    pairs, rulers, alone = [], 0, 0
    for key in ours.keys() | theirs.keys():
        if suite not in ("", key[0]) or l2 not in ("", key[3]):
            continue
        one, other = ours.get(key), theirs.get(key)
        there = [point for point in (one, other) if point is not None and point.state != "na"]
        if one is None or other is None or len(there) < 2:
            alone += bool(there)
        elif one.version != other.version:
            rulers += 1
        elif quantity == "latency" or not _is_baseline(one) or not _is_baseline(other):
            names = tuple(key_of(point.series, key[0])[2] for point in (one, other)) if across else (key[1], key[1])
            pair = _pair(key, names, (one, other), quantity, thresholds, results.benchmarks[one.series.benchmark])
            if quantity == "speedup" and pair.verdict in ("slower", "faster"):
                beside = [some.get((key[0], key[2], key[3])) for some in baselines]
                confidence = thresholds.of(pair.suite, pair.head_variant, pair.case, pair.l2).confidence
                pair = _beside_baseline(pair, (one, other), beside, confidence)
            pairs.append(pair)
    pairs.sort(key=_order)
    return Comparison(tuple(pairs), rulers, alone)


def run_of(results: Results, side: Side) -> Run | None:
    """The side's result file; ``None`` if there is none."""
    return next((run for run in results.runs_of(side.machine) if run.commit == side.commit), None)


def differing(base: Run, head: Run) -> list[tuple[str, str, str]]:
    """What else differs between two runs: name, base's value, head's."""
    found = []
    for name in ("machine", "clock_state", "protocol"):
        found.append((name.replace("_", " "), str(getattr(base, name)), str(getattr(head, name))))
    for facts in ((base.toolchain, head.toolchain), (base.host, head.host), (base.strings, head.strings)):
        found += [(name, facts[0].get(name, ""), facts[1].get(name, "")) for name in sorted({*facts[0], *facts[1]})]
    unique = {name: (name, ours, theirs) for name, ours, theirs in reversed(found) if ours != theirs}
    return list(unique.values())[::-1]


def toolchain_text(run: Run) -> str:
    """``torch 2.11.0 · triton 3.6.0 · driver 580.1``; the environment's name where no more is known."""
    tools = [f"{name} {run.toolchain[name]}" for name in _TOOLS if run.toolchain.get(name)]
    return " · ".join(tools) or run.environment


def _points(results: Results, machine: str, commit: str) -> list[Point]:
    """Return one point a case: of our two benchmarks of a suite the latency, which carries the ratio as well."""
    return [one for one in results.at(commit, machine) if not results.benchmarks[one.series.benchmark].is_ratio]


def _order(pair: Pair) -> tuple[Any, ...]:
    return loudness(pair.verdict, pair.log, pair.suite, pair.case, pair.l2, pair.head_variant)


def _baselines(results: Results, points: Iterable[Point]) -> Mapping[tuple[str, str, str], Point]:
    """Return the points of the baselines by suite, case and cache state."""
    found = {}
    for point in points:
        if _is_baseline(point):
            suite = suite_of(results.benchmarks[point.series.benchmark])
            _, _, _, case, l2 = key_of(point.series, suite)
            found[suite, case, l2] = point
    return found


def _beside_baseline(pair: Pair, own: tuple[Point, Point], baseline: Sequence[Point | None], confidence: float) -> Pair:
    """The pair of a ratio with the times behind it, and called "baseline moved" where they say so."""
    before, after = baseline
    if before is None or after is None or before.version != after.version:
        return pair
    times = behind(changed(*own), changed(before, after))
    if times is None:
        return pair
    return replace(pair, times=times, verdict=called(pair.verdict, pair.log, times, confidence))


def _by_key(results: Results, points: Iterable[Point], only: str, across: bool) -> dict[_Key, Point]:
    """Return points by suite, variant ("" where variants are compared), case and cache state.

    ``only`` is the variant that counts, "" for all.
    """
    found = {}
    for point in points:
        suite = suite_of(results.benchmarks[point.series.benchmark])
        _, _, variant, case, l2 = key_of(point.series, suite)
        if only in ("", variant):
            found[suite, "" if across else variant, case, l2] = point
    return found


def _pair(
    key: _Key,
    variants: tuple[str, ...],
    points: tuple[Point, Point],
    quantity: Quantity,
    rules: Thresholds,
    benchmark: Benchmark,
) -> Pair:
    suite, _, case, l2 = key
    base_variant, head_variant = variants
    base, head = points
    change = _change(base, head, quantity, benchmark.higher_is_better)
    verdict, why = _verdict(base, head, change, rules.of(suite, head_variant, case, l2))
    return Pair(
        suite=suite,
        case=case,
        l2=l2,
        base_variant=base_variant,
        head_variant=head_variant,
        base=base.value,
        head=head.value,
        log=change.worse,
        error=change.error,
        verdict=verdict,
        why=why,
        code=_code(base, head),
        unit=benchmark.unit,
    )


def _is_baseline(point: Point) -> bool:
    """Whether it is compared with itself: its ratio is one, always."""
    return bool(point.baseline) and point.series.axis("variant") == point.baseline


def _change(base: Point, head: Point, quantity: Quantity, higher_is_better: bool) -> Change:
    if quantity == "speedup" and base.baseline:
        if base.log_ratio is None or head.log_ratio is None:
            return UNKNOWN
        return Change(base.log_ratio - head.log_ratio, error_of(base.ratio_error, head.ratio_error))
    return changed(base, head, higher_is_better)


def _verdict(base: Point, head: Point, change: Change, rule: Threshold) -> tuple[Verdict, str]:
    """The verdict and why; either side may have failed, and two runs tell nothing of what lies between runs."""
    for name, point in (("base", base), ("head", head)):
        if point.state == "failed":
            return "failed", f"{name}: {point.reason}" if point.reason else name
    if math.isnan(change.worse):
        return "unsure", "a number is missing"
    if math.isnan(change.error):
        return "unsure", "its noise is not known"
    return change.verdict(rule.min_effect, rule.confidence), ""


def _code(base: Point, head: Point) -> str:
    ours, theirs = _read(base.code), _read(head.code)
    if not ours or not theirs:
        return ""
    if same_code(ours, theirs):
        return "the same"
    told = "; ".join(one.text for one in code_evidence(ours, theirs))
    # A record from before the host's code was fingerprinted knows its kernels alone.
    return told or ("the kernels are the same" if same_kernels(ours, theirs) else "")


def _read(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        code = json.loads(text)
    except ValueError:
        return {}
    return code if isinstance(code, dict) else {}
