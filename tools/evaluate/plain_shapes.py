"""Make series of other shapes than the standard ones: with steps that a person cannot miss, and with none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from lockstep.detect import Trend
from tools.evaluate.samples import Sample, place, planted, stepping, usual

#: Noise of the series whose noise is not their subject.
_QUIET = 0.005
_APART = 12


def plain_shapes(rng: np.random.Generator, count: int) -> list[Sample]:
    """Make ``count`` series of each kind in this module."""
    return [make(rng) for make in _KINDS for _ in range(count)]


def _log_size(rng: np.random.Generator, low: float, high: float) -> float:
    """Return the log size of a step up or down by ``low`` … ``high`` (0.2 is 20 %)."""
    return float(np.log1p(rng.uniform(low, high)) * rng.choice([-1, 1]))


def _many(rng: np.random.Generator, count: int, reverts: bool) -> Sample:
    sizes = [_log_size(rng, 0.2, 2.0) for _ in range(count)]
    if reverts:
        sizes[1::2] = [-size for size in sizes[::2]]
    steps = _APART * np.arange(1, count + 1)
    kind = f"{count} of 20 … 200 %, 12 apart{', half reverts' if reverts else ''}"
    return stepping(kind, rng.normal(0, _QUIET, _APART * (count + 1)), steps, sizes)


def _plateaus(rng: np.random.Generator) -> Sample:
    steps = np.cumsum(rng.integers(3, 31, 7))
    sizes = [_log_size(rng, 0.1, 1.0) for _ in steps[:-1]]
    return stepping("six plateaus of 3 … 30", rng.normal(0, _QUIET, steps[-1] + 10), steps[:-1], sizes)


def _stairs(rng: np.random.Generator) -> Sample:
    steps, way = np.cumsum(rng.integers(5, 13, 6)) + 10, rng.choice([-1, 1])
    sizes = way * np.log1p(rng.uniform(0.05, 0.15, 6))
    return stepping("stairs of six, 5 … 15 %, 5 … 12 apart", rng.normal(0, _QUIET, steps[-1] + 12), steps, sizes)


def _staircase(rng: np.random.Generator) -> Sample:
    steps = 30 + np.append(0, np.cumsum(rng.integers(2, 6, 3)))
    sizes = rng.uniform(0.1, 0.5, 4) * rng.choice([-1, 1], 4)
    return stepping("four steps 2 … 5 apart", rng.normal(0, rng.uniform(0.002, 0.01), 60), steps, sizes)


def _noisier(rng: np.random.Generator, grows: bool, stepped: bool) -> Sample:
    at, factor, noise = int(rng.integers(30, 50)), rng.uniform(3, 10), rng.normal(0, 0.003, 80)
    noise[slice(at, None) if grows else slice(at)] *= factor
    kind = f"noise {'grows' if grows else 'shrinks'} × 3 … 10{' at a step of 20 … 100 %' if stepped else ', no step'}"
    return stepping(kind, noise, *((at, _log_size(rng, 0.2, 1.0)) if stepped else ()))


def _dip(rng: np.random.Generator) -> Sample:
    at, size = int(rng.integers(20, 50)), _log_size(rng, 0.5, 1.5)
    noise = rng.normal(0, rng.uniform(0.01, 0.02), 90)
    noise[at : at + 9] = rng.normal(0, 0.1, 9)
    return stepping("noisy dip of nine points", noise, [at, at + 9], [size, -size])


def _drift(rng: np.random.Generator, doubles: bool) -> Sample:
    slope = rng.uniform(0.001, 0.003) * rng.choice([-1, 1])
    noise = rng.normal(0, 0.003, 80) + slope * np.arange(80)
    kind = f"drift of .1 … .3 % a commit, {'× 2 at 40' if doubles else 'no step'}"
    return stepping(kind, noise, *((40, np.log(2)) if doubles else ()))


def _yearly(rng: np.random.Generator, stepped: bool) -> Sample:
    phase = 2 * np.pi * (np.arange(240) / rng.uniform(120, 240) + rng.random())
    noise = 0.03 * np.sin(phase) + rng.normal(0, _QUIET, 240)
    kind = f"yearly cycle of ± 3 %, {'10 %' if stepped else 'no step'}"
    return stepping(kind, noise, *((rng.integers(40, 200), _log_size(rng, 0.1, 0.1)) if stepped else ()))


def _modes(rng: np.random.Generator, count: int, stay: int, stepped: bool = False) -> Sample:
    """Return a series that switches between ``count`` levels at random, each kept for ``stay`` commits on average."""
    levels = np.append(0, np.cumsum(rng.uniform(0.05, 0.2, count - 1)))
    moves = np.where(rng.random(120) < 1 / stay, rng.integers(0 if stay == 1 else 1, count, 120), 0)
    noise = levels[np.cumsum(moves) % count] + rng.normal(0, _QUIET, 120)
    what = "at random" if stay == 1 else f"{stay} in a row"
    kind = f"{count} modes, {what}, {'+30 … 100 %' if stepped else 'no step'}"
    return stepping(kind, noise, *((rng.integers(50, 90), np.log1p(rng.uniform(0.3, 1.0))) if stepped else ()))


def _blocks(rng: np.random.Generator, machines: int) -> Sample:
    levels = np.append(0, np.cumsum(rng.uniform(0.06, 0.2, machines - 1)))
    drawn = np.repeat(rng.integers(0, machines, 30), rng.integers(4, 11, 30))[:120]
    noise = levels[drawn] + rng.normal(0, _QUIET, 120)
    size = _log_size(rng, 0.6, 1.0)
    return stepping(f"{machines} machines in blocks of 4 … 10, 60 … 100 %", noise, rng.integers(70, 91), size)


def _bursts(rng: np.random.Generator, stepped: bool) -> Sample:
    noise = rng.normal(0, 0.01, 120)
    for start in rng.choice(np.arange(5, 115, 10), 4, replace=False) + rng.integers(0, 4, 4):
        noise[start : start + rng.integers(2, 5)] += rng.uniform(0.2, 0.5)
    kind = f"bursts of 2 … 4 outliers, {'10 %' if stepped else 'no step'}"
    return planted(rng, kind, noise, *(((int(rng.integers(30, 90)),), (0.1,)) if stepped else ()))


def _skewed(rng: np.random.Generator, law: str, stepped: bool) -> Sample:
    """Return a series whose noise has a long upper tail and a standard deviation of 1 %."""
    sigma, shape = rng.uniform(0.5, 1.0), rng.uniform(1.0, 3.0)
    if law == "lognormal":
        noise = rng.lognormal(0, sigma, 120)
        deviation = np.sqrt(np.expm1(sigma**2) * np.exp(sigma**2))
    else:
        noise, deviation = rng.gamma(shape, size=120), np.sqrt(shape)
    steps = ((int(rng.integers(20, 100)),), (0.05,)) if stepped else ()
    return planted(rng, f"skewed noise ({law}), {'5 %' if stepped else 'no step'}", 0.01 * noise / deviation, *steps)


def _constant(rng: np.random.Generator) -> Sample:
    size = np.log(2) * rng.choice([-1, 1])
    return stepping("constant, × 2 or ÷ 2 after 3 … 9", np.zeros(60), rng.integers(3, 10), size)


def _quantised(rng: np.random.Generator, unit: str) -> Sample:
    """Return a series of rounded numbers whose noise is below their unit, with a step of two units or more."""
    low, at = int(rng.integers(8, 40)), int(rng.integers(15, 45))
    high = low + int(rng.integers(2, 9))
    values = np.round(np.where(np.arange(60) < at, low, high) + rng.normal(0, 0.3, 60)) * (
        1 if unit == "integers" else 1e-4
    )
    return Sample(f"{unit}, a step of 2 … 8 units", Trend(values), (at,), (float(np.log(high / low)),))


def _unscaled(rng: np.random.Generator, before: float, after: float, noise: float) -> Sample:
    """Return a series in which a number is zero or negative, so that its step is a difference and not a ratio."""
    at = int(rng.integers(15, 45))
    values = np.where(np.arange(60) < at, before, after) + noise * rng.normal(0, 1, 60)
    return Sample(f"{before:g} → {after:g}, noise {noise:g}", Trend(values), (at,), (after - before,))


def _heavy(rng: np.random.Generator) -> Sample:
    noise = 0.01 * rng.standard_t(3, 120)
    return planted(rng, "3 %, heavy tails (t, 3)", noise, (place(rng),), (0.03,))


def _short(rng: np.random.Generator) -> Sample:
    return planted(rng, "5 %, 24 commits", usual(rng, 24), (int(rng.integers(12, 20)),), (0.05,))


def _long(rng: np.random.Generator) -> Sample:
    steps = [int(rng.integers(first, first + 100)) for first in (50, 300, 550, 800)]
    return planted(rng, "four of 2 … 10 %, 1000 commits", usual(rng, 1000), steps, (0.02, 0.03, 0.05, 0.1))


_COUNTS = (1, 2, 4, 6, 8, 12)
_KINDS: tuple[Callable[[np.random.Generator], Sample], ...] = (
    *(partial(_many, count=count, reverts=False) for count in _COUNTS),
    *(partial(_many, count=count, reverts=True) for count in _COUNTS[1:]),
    _plateaus,
    _stairs,
    _staircase,
    *(partial(_noisier, grows=grows, stepped=stepped) for stepped in (True, False) for grows in (True, False)),
    _dip,
    *(partial(_drift, doubles=doubles) for doubles in (False, True)),
    *(partial(_yearly, stepped=stepped) for stepped in (False, True)),
    *(partial(_modes, count=count, stay=stay) for count in (2, 3) for stay in (1, 8)),
    *(partial(_modes, count=count, stay=1, stepped=True) for count in (2, 3)),
    *(partial(_blocks, machines=machines) for machines in (2, 3)),
    *(partial(_bursts, stepped=stepped) for stepped in (False, True)),
    *(partial(_skewed, law=law, stepped=stepped) for law in ("lognormal", "gamma") for stepped in (False, True)),
    _constant,
    *(partial(_quantised, unit=unit) for unit in ("integers", "few digits")),
    *(
        partial(_unscaled, before=before, after=after, noise=noise)
        for before, after, noise in ((0, 5, 0), (5, 0, 0), (-100, -120, 1), (0, 10, 1))
    ),
    _heavy,
    _short,
    _long,
)
