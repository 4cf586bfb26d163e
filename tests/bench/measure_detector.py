"""Measure the ranges and the speed of the detector; prints one line a figure:

    python tests/bench/measure_detector.py [--ranges] [--speed]

Times are CPU seconds of one process. ``python -m tools evaluate`` scores the detector.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lockstep.detect import Trend, analyse, analyse_many, continue_many

Generator = np.random.Generator

#: No other test or choice of settings uses this seed.
SEED = 203
COMMITS = 120
#: What each push adds to the drift at each later commit: an autoregression with correlation 0.9.
DRIFT = np.tril(0.9 ** np.abs(np.subtract.outer(np.arange(COMMITS), np.arange(COMMITS))))


def main() -> None:
    """Measure what is asked for, both by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranges", action="store_true", help="how often ranges hold the step, and how wide they are")
    parser.add_argument("--speed", action="store_true", help="CPU seconds")
    parser.add_argument("--series", type=int, default=16_000, help="for the speed (default: %(default)s)")
    args = parser.parse_args()
    generator = np.random.default_rng(SEED)
    if args.ranges or not args.speed:
        for partial, errors in product((False, True), (False, True)):
            ranges(generator, 2000, partial=partial, errors=errors)
    if args.speed or not args.ranges:
        speed(generator, args.series)


def ranges(generator: Generator, count: int, *, partial: bool, errors: bool) -> None:
    """Print how many ranges hold the step, of ``count`` series, and how many commits they span.

    Steps are of 1 … 500 % in noise of 0.05 … 3 %, all sizes alike on a log scale, in 20 to 200 commits. The change
    nearest to the step counts.

    Args:
        generator: draws the series.
        count: series.
        partial: the first point after the step lies −0.3 … 1.6 of the way to the new level.
        errors: each point has a standard error.
    """
    cases = [unclean(generator, partial=partial, errors=errors) for _ in range(count)]
    held, widths, clear = [], [], []
    for (_, at, clarity), analysis in zip(cases, analyse_many([trend for trend, *_ in cases]), strict=True):
        if not analysis.changes:
            continue
        change = min(analysis.changes, key=lambda one: abs(one.index - at))
        held.append(change.earliest <= at <= change.latest)
        widths.append(change.latest - change.earliest + 1)
        clear.append(clarity > 10)
    width = np.array(widths)
    kind = f"first point {'anywhere' if partial else 'at the new level'}, errors {'known' if errors else 'unknown'}"
    share = f"{np.mean(held):.1%} of {len(held)} ranges hold the step"
    print(f"{kind}: {share}, {width.mean():.2f} commits wide, {width[clear].mean():.2f} where the step is > 10 × noise")


def unclean(generator: Generator, *, partial: bool, errors: bool) -> tuple[Trend, int, float]:
    """Return a series with one step, the index of the step, and its size over the noise."""
    length = int(generator.integers(20, 201))
    noise, factor = (np.exp(generator.uniform(*np.log(ends))) for ends in ((0.0005, 0.03), (0.01, 5.0)))
    size, at = float(np.log1p(factor) * generator.choice([-1, 1])), int(generator.integers(5, length - 5))
    y = generator.normal(0, noise, length) + size * (np.arange(length) >= at)
    if partial:
        y[at] += size * (generator.uniform(-0.3, 1.6) - 1)
    known = noise * np.exp(generator.normal(0, 0.2, length)) if errors else None
    return Trend(np.exp(y), known), at, abs(size) / noise


def speed(generator: Generator, count: int) -> None:
    """Print the CPU seconds of analyses of series of 120 commits, of which half have a step of 1 … 10 %."""
    values = np.exp([standard(generator, stepped=place % 2 == 0) for place in range(count)])
    trends = [Trend(one) for one in values]
    report(f"{count} series of {COMMITS} commits", lambda: analyse_many(trends))
    report("one series, mean of 20", lambda: [analyse(one) for one in trends[:20]], 20)
    begun = [Trend(one[:-1]) for one in values[:5000]]
    states = [state for _, state in continue_many(begun, [None] * len(begun))]
    report(f"one more commit of {len(begun)} series", lambda: continue_many(trends[: len(begun)], states))


def standard(generator: Generator, *, stepped: bool) -> NDArray[np.float64]:
    """Return log values with 1 % noise, 2 % outliers and 0.3 % drift, with a step or without one."""
    odd = (generator.random(COMMITS) < 0.02) * generator.uniform(0.05, 0.2, COMMITS)
    step = generator.uniform(0.01, 0.1) * (np.arange(COMMITS) >= generator.integers(20, 101)) if stepped else 0.0
    drift = DRIFT @ generator.normal(0, 0.003 * np.sqrt(1 - 0.9**2), COMMITS)
    return generator.normal(0, 0.01, COMMITS) + odd + step + drift


def report(name: str, work: Callable[[], object], times: int = 1) -> None:
    """Print the CPU seconds that ``work`` takes, over ``times``."""
    begin = time.process_time()
    work()
    print(f"{name}: {(time.process_time() - begin) / times:.4g} s")


if __name__ == "__main__":
    main()
