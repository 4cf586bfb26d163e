"""Make series with planted changes, by which methods of change detection are scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.detect import Trend

Floats = NDArray[np.float64]
Density = Callable[[Floats], Floats]

#: Relative sizes of the steps in the standard series; 0 is a series without a step.
SIZES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)

#: The standard series that are also scored together: all but the smallest step.
STANDARD = ("no step", "1 %", "2 %", "3 %", "5 %", "10 %")


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


def standard(rng: np.random.Generator, count: int) -> list[Sample]:
    """Return series of 120 commits: 1 % noise, 2 % outliers of +5 … 20 %, 0.3 % autocorrelated drift, at most one step.

    The step lies at commit 20 … 100 and goes either way. The drift is an autoregression with a correlation of 0.9 from
    one commit to the next. With this drift, asv, KernelCPD and the oracle reach the scores from which the required
    figures were derived.
    """
    samples = []
    for size in [size for size in SIZES for _ in range(count)]:
        noise, steps = usual(rng, 120), (place(rng),) if size else ()
        kind = f"{100 * size:g} %" if size else "no step"
        samples.append(planted(rng, kind, noise, steps, (size,) if size else (), _usual_density))
    return samples


def stepping(
    kind: str, noise: Floats, at: ArrayLike = (), by: ArrayLike = (), density: Density | None = None
) -> Sample:
    """Return a series of ``noise`` (log units) with steps of the log sizes ``by`` at the commits ``at``, ascending."""
    steps, sizes = np.array(at, dtype=np.int64, ndmin=1), np.array(by, dtype=np.float64, ndmin=1)
    y = noise + (np.arange(noise.size)[:, None] >= steps) @ sizes
    return Sample(kind, Trend(np.exp(y)), tuple(steps.tolist()), tuple(sizes.tolist()), density)


def planted(
    rng: np.random.Generator,
    kind: str,
    noise: Floats,
    steps: Sequence[int] = (),
    sizes: Sequence[float] = (),
    density: Density | None = None,
) -> Sample:
    """Return a series of ``noise`` (log units) with steps of relative ``sizes``, each up or down at random."""
    return stepping(kind, noise, steps, [np.log1p(size) * rng.choice([-1, 1]) for size in sizes], density)


def _wandering(rng: np.random.Generator, length: int) -> Floats:
    """Return an autoregression of order one with a standard deviation of 0.3 %."""
    spread, memory = 0.003, 0.9
    pushes = rng.normal(0, spread * np.sqrt(1 - memory**2), length)
    pushes[0] = rng.normal(0, spread)
    for place in range(1, length):
        pushes[place] += memory * pushes[place - 1]
    return pushes


def place(rng: np.random.Generator) -> int:
    """Return the commit of the step of a series of 120 commits."""
    return int(rng.integers(20, 101))


def usual(rng: np.random.Generator, length: int) -> Floats:
    """Return the noise of the standard series."""
    outliers = (rng.random(length) < 0.02) * np.log1p(rng.uniform(0.05, 0.2, length))
    noise: Floats = rng.normal(0, 0.01, length) + outliers + _wandering(rng, length)
    return noise


def _usual_density(residuals: Floats) -> Floats:
    spread = np.hypot(0.01, 0.003)
    up = np.expm1(residuals)
    normal = np.exp(-0.5 * (residuals / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    log_density: Floats = np.log(0.98 * normal + 0.02 * ((up > 0.04) & (up < 0.21)) / 0.15 + 1e-12)
    return log_density
