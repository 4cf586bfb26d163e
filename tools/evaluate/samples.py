"""Make series with planted changes, by which methods of change detection are scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.detect import Trend

Floats = NDArray[np.float64]
Density = Callable[[Floats], Floats]

#: Relative sizes of the steps in the standard series; 0 is a series without a step.
SIZES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
#: First and last commit at which the step of a series of 120 commits may lie.
FIRST, LAST = 20, 100


@dataclass(frozen=True, eq=False)
class Sample:
    """One series and its true changes.

    Attributes:
        kind: name of the kind of series, which is a row of the tables.
        trend: the series, which is the input of a detector.
        steps: the index of each planted step, ascending.
        sizes: size of each step, on the scale of ``on_scale``.
        density: log density of the noise about a level of 0, for the oracle; a function from [points] to [points].
            ``None`` if the oracle is not asked.
        slacks: for each step, how far its true size may lie from ``sizes``; () if the sizes are exact.
    """

    kind: str
    trend: Trend
    steps: tuple[int, ...]
    sizes: tuple[float, ...]
    density: Density | None = None
    slacks: tuple[float, ...] = ()


def on_scale(values: Floats) -> Floats:
    """Return the scale on which sizes are differences: logarithms, or the values if one is zero or negative."""
    return values if np.any(values <= 0) else np.log(values)


def label(size: float) -> str:
    """Return the name of the standard series with a step of this relative size: "no step", "0.5 %", "3 %"."""
    return f"{100 * size:g} %" if size else "no step"


def standard(rng: np.random.Generator, count: int) -> list[Sample]:
    """Return series of 120 commits: 1 % noise, 2 % outliers of +5 … 20 %, 0.3 % autocorrelated drift, at most one step.

    The step lies at commit 20 … 100 and goes either way. The drift is an autoregression with a correlation of 0.9 from
    one commit to the next. With this drift, asv, KernelCPD and the oracle reach the scores from which the required
    figures were derived.
    """
    samples = []
    for size in SIZES:
        for _ in range(count):
            noise, steps = _usual(rng, 120), (_place(rng),) if size else ()
            samples.append(planted(rng, label(size), noise, steps, (size,) if size else (), _usual_density))
    return samples


def others(rng: np.random.Generator, count: int) -> list[Sample]:
    """Make ``count`` series of each kind in this module that is not standard, such as with heavy tails."""
    return [make(rng) for make in _KINDS for _ in range(count)]


def planted(
    rng: np.random.Generator,
    kind: str,
    noise: Floats,
    steps: tuple[int, ...] = (),
    sizes: tuple[float, ...] = (),
    density: Density | None = None,
) -> Sample:
    """Return a series of ``noise`` (log units) with steps of relative ``sizes``, each up or down at random."""
    order = np.argsort(steps)
    places = tuple(int(steps[place]) for place in order)
    logs = tuple(float(np.log1p(sizes[place]) * rng.choice([-1, 1])) for place in order)
    y = noise.copy()
    for place, size in zip(places, logs, strict=True):
        y[place:] += size
    return Sample(kind, Trend(np.exp(y)), places, logs, density)


def _wandering(rng: np.random.Generator, length: int) -> Floats:
    """Return an autoregression of order one with a standard deviation of 0.3 %."""
    spread, memory = 0.003, 0.9
    pushes = rng.normal(0, spread * np.sqrt(1 - memory**2), length)
    pushes[0] = rng.normal(0, spread)
    for place in range(1, length):
        pushes[place] += memory * pushes[place - 1]
    return pushes


def _place(rng: np.random.Generator) -> int:
    return int(rng.integers(FIRST, LAST + 1))


def _usual(rng: np.random.Generator, length: int) -> Floats:
    outliers = (rng.random(length) < 0.02) * np.log1p(rng.uniform(0.05, 0.2, length))
    noise: Floats = rng.normal(0, 0.01, length) + outliers + _wandering(rng, length)
    return noise


def _usual_density(residuals: Floats) -> Floats:
    spread = np.hypot(0.01, 0.003)
    up = np.expm1(residuals)
    normal = np.exp(-0.5 * (residuals / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    log_density: Floats = np.log(0.98 * normal + 0.02 * ((up > 0.04) & (up < 0.21)) / 0.15 + 1e-12)
    return log_density


def _heavy(rng: np.random.Generator) -> Sample:
    noise = 0.01 * rng.standard_t(3, 120)
    return planted(rng, "3 %, heavy tails (t, 3)", noise, (_place(rng),), (0.03,))


def _short(rng: np.random.Generator) -> Sample:
    return planted(rng, "5 %, 24 commits", _usual(rng, 24), (int(rng.integers(12, 20)),), (0.05,))


def _long(rng: np.random.Generator) -> Sample:
    steps = tuple(int(rng.integers(first, first + 100)) for first in (50, 300, 550, 800))
    return planted(rng, "four of 2 … 10 %, 1000 commits", _usual(rng, 1000), steps, (0.02, 0.03, 0.05, 0.1))


_KINDS: tuple[Callable[[np.random.Generator], Sample], ...] = (_heavy, _short, _long)
