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
#: Relative distance of an outlier in the standard series.
STRAY = (0.05, 0.2)


@dataclass(frozen=True, slots=True)
class Law:
    """The noise of a series about its level, which the ideal detector knows.

    Attributes:
        noise: standard deviation of a point, log units.
        drift: standard deviation of an autoregression about the level, log units.
        memory: correlation of the drift from one commit to the next.
        odd: share of outliers, which lie ``STRAY`` too high.
    """

    noise: float
    drift: float = 0.0
    memory: float = 0.0
    odd: float = 0.0


#: Noise of the standard series.
USUAL = Law(noise=0.01, drift=0.003, memory=0.9, odd=0.02)


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
        law: the law of the noise; ``None`` if the ideal is not computed.
        slacks: for each step, how far its true size may lie from ``sizes``; () if the sizes are exact.
        name: name of a recorded series.
    """

    kind: str
    trend: Trend
    steps: tuple[int, ...]
    sizes: tuple[float, ...]
    density: Density | None = None
    law: Law | None = None
    slacks: tuple[float, ...] = ()
    name: str = ""


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
    return [
        planted(rng, label(size), _usual(rng, 120), (_place(rng),) if size else (), (size,) if size else (), law=USUAL)
        for size in SIZES
        for _ in range(count)
    ]


def others(rng: np.random.Generator, count: int) -> list[Sample]:
    """Make ``count`` series of each kind in this module that is not standard, such as with gaps or heavy tails."""
    return [make(rng) for make in _KINDS.values() for _ in range(count)]


def planted(
    rng: np.random.Generator,
    kind: str,
    noise: Floats,
    steps: tuple[int, ...] = (),
    sizes: tuple[float, ...] = (),
    density: Density | None = None,
    errors: Floats | None = None,
    law: Law | None = None,
) -> Sample:
    """Return a series of ``noise`` (log units) with steps of relative ``sizes``, each up or down at random."""
    order = np.argsort(steps)
    places = tuple(int(steps[place]) for place in order)
    logs = tuple(float(np.log1p(sizes[place]) * rng.choice([-1, 1])) for place in order)
    y = noise.copy()
    for place, size in zip(places, logs, strict=True):
        y[place:] += size
    return Sample(kind, Trend(np.exp(y), errors), places, logs, density or _usual_density, law)


def wandering(rng: np.random.Generator, length: int, spread: float, memory: float) -> Floats:
    """Return an autoregression of order one with standard deviation ``spread``."""
    pushes = rng.normal(0, spread * np.sqrt(1 - memory**2), length)
    pushes[0] = rng.normal(0, spread)
    for place in range(1, length):
        pushes[place] += memory * pushes[place - 1]
    return pushes


def _place(rng: np.random.Generator) -> int:
    return int(rng.integers(FIRST, LAST + 1))


def _usual(rng: np.random.Generator, length: int, drift: float = USUAL.drift, memory: float = USUAL.memory) -> Floats:
    outliers = (rng.random(length) < USUAL.odd) * np.log1p(rng.uniform(*STRAY, length))
    noise: Floats = rng.normal(0, USUAL.noise, length) + outliers + wandering(rng, length, drift, memory)
    return noise


def _usual_density(residuals: Floats) -> Floats:
    spread = np.hypot(0.01, 0.003)
    up = np.expm1(residuals)
    normal = np.exp(-0.5 * (residuals / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    log_density: Floats = np.log(0.98 * normal + 0.02 * ((up > 0.04) & (up < 0.21)) / 0.15 + 1e-12)
    return log_density


def _several(rng: np.random.Generator) -> Sample:
    steps = (int(rng.integers(25, 46)), int(rng.integers(65, 86)), int(rng.integers(105, 126)))
    sizes = tuple(rng.choice([0.03, 0.05, 0.1], 3).tolist())
    return planted(rng, "three steps of 3 … 10 %", _usual(rng, 150), steps, sizes)


def _gaps(rng: np.random.Generator) -> Sample:
    noise = _usual(rng, 120)
    noise[rng.random(120) < 0.3] = np.nan
    return planted(rng, "3 %, 30 % of commits missing", noise, (_place(rng),), (0.03,))


def _heavy(rng: np.random.Generator) -> Sample:
    noise = 0.01 * rng.standard_t(3, 120)
    return planted(rng, "3 %, heavy tails (t, 3)", noise, (_place(rng),), (0.03,))


def _heavy_quiet(rng: np.random.Generator) -> Sample:
    return planted(rng, "no step, heavy tails (t, 3)", 0.01 * rng.standard_t(3, 120))


def _strong_drift(rng: np.random.Generator) -> Sample:
    return planted(rng, "no step, drift of 1 %", _usual(rng, 120, 0.01, 0.95))


def _strong_drift_step(rng: np.random.Generator) -> Sample:
    return planted(rng, "5 %, drift of 1 %", _usual(rng, 120, 0.01, 0.95), (_place(rng),), (0.05,))


def _ramp(rng: np.random.Generator) -> Sample:
    begin = int(rng.integers(20, 60))
    slope = rng.uniform(0.05, 0.15) / 60 * rng.choice([-1, 1])
    return planted(rng, "ramp of 5 … 15 % in 60", _usual(rng, 120) + slope * np.clip(np.arange(120) - begin, 0, 60))


def _bimodal(rng: np.random.Generator) -> Sample:
    upper = rng.random(120) < rng.uniform(0.3, 0.5)
    return planted(rng, "bimodal, 8 % apart, at random", _usual(rng, 120) + 0.08 * upper)


def _sticky(rng: np.random.Generator) -> Sample:
    upper = np.cumsum(rng.random(120) < 1 / 8) % 2
    return planted(rng, "bimodal, 8 % apart, 8 in a row", _usual(rng, 120) + 0.08 * upper)


def _short(rng: np.random.Generator) -> Sample:
    return planted(rng, "5 %, 24 commits", _usual(rng, 24), (int(rng.integers(12, 20)),), (0.05,))


def _long_quiet(rng: np.random.Generator) -> Sample:
    return planted(rng, "no step, 1000 commits", _usual(rng, 1000))


def _long(rng: np.random.Generator) -> Sample:
    steps = tuple(int(rng.integers(first, first + 100)) for first in (50, 300, 550, 800))
    return planted(rng, "four of 2 … 10 %, 1000 commits", _usual(rng, 1000), steps, (0.02, 0.03, 0.05, 0.1))


_KINDS: dict[str, Callable[[np.random.Generator], Sample]] = {
    "bimodal": _bimodal,
    "sticky": _sticky,
    "ramp": _ramp,
    "drift": _strong_drift,
    "drift step": _strong_drift_step,
    "heavy": _heavy_quiet,
    "heavy step": _heavy,
    "gaps": _gaps,
    "several": _several,
    "short": _short,
    "long quiet": _long_quiet,
    "long": _long,
}
