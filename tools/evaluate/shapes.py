"""Make series of further shapes: unclean steps, short or noisier levels, and further noise without a step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lockstep.detect import Trend
from tools.evaluate.samples import Floats, Sample, planted, wandering


def shapes(rng: np.random.Generator, count: int) -> list[Sample]:
    """Make ``count`` series of each kind in this module."""
    return [make(rng) for make in _KINDS for _ in range(count)]


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _stepped(rng: np.random.Generator, kind: str, first: float, after: int) -> Sample:
    """Return a series with a step of 5 … 100 % at commit ``after``, up or down.

    The first point after the step lies ``first`` of the way to the new level.
    """
    spread, size = _log_uniform(rng, 0.001, 0.005), float(np.log1p(_log_uniform(rng, 0.05, 1.0)) * rng.choice([-1, 1]))
    y = rng.normal(0, spread, 60)
    y[after:] += size
    y[after] += size * (first - 1)
    return Sample(kind, Trend(np.exp(y)), (after,), (size,))


def _first_point(rng: np.random.Generator) -> Sample:
    return _stepped(rng, "first point at no level", rng.uniform(-0.3, 1.6), int(rng.integers(12, 48)))


def _early(rng: np.random.Generator) -> Sample:
    return _stepped(rng, "step in the first ten", 1.0, int(rng.integers(3, 10)))


def _staircase(rng: np.random.Generator) -> Sample:
    spread = _log_uniform(rng, 0.002, 0.01)
    sizes = rng.uniform(0.1, 0.5, 4) * rng.choice([-1, 1], 4)
    steps = 30 + np.append(0, np.cumsum(rng.integers(2, 6, 3)))
    y = rng.normal(0, spread, 60) + (np.arange(60) >= steps[:, None]).T @ sizes
    places = tuple(steps.tolist())
    return Sample("four steps 2 … 5 apart", Trend(np.exp(y)), places, tuple(sizes.tolist()))


def _quiet(rng: np.random.Generator, kind: str, noise: Floats) -> Sample:
    return planted(rng, f"no step, {kind}", _log_uniform(rng, 0.001, 0.02) * noise)


def _remembering(rng: np.random.Generator) -> Sample:
    return _quiet(rng, "autoregression of .3 … .7", wandering(rng, 120, 1.0, rng.uniform(0.3, 0.7)))


def _outliers(rng: np.random.Generator) -> Sample:
    noise = rng.normal(0, 1, 120)
    noise += (rng.random(120) < rng.uniform(0.02, 0.05)) * rng.uniform(5, 20, 120)
    return _quiet(rng, "2 … 5 % outliers", noise)


def _uneven(rng: np.random.Generator) -> Sample:
    return _quiet(rng, "noise of uneven size", rng.normal(0, 1, 120) * np.repeat(np.exp(rng.normal(0, 0.5, 6)), 20))


def _rounded(rng: np.random.Generator) -> Sample:
    unit = rng.uniform(0.3, 3.0)
    return _quiet(rng, "rounded numbers", unit * np.round(rng.normal(0, 1, 120) / unit))


_KINDS: tuple[Callable[[np.random.Generator], Sample], ...] = (
    _first_point,
    _early,
    _staircase,
    _remembering,
    _outliers,
    _uneven,
    _rounded,
)
