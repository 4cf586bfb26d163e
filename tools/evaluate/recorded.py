"""Series with planted steps and the noise of a recorded history: its spread between runs and its intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from lockstep.record.file import SUFFIX, RecordError, read_records
from lockstep.timing.intervals import NOMINAL, t_quantile
from tools.evaluate.samples import FIRST, LAST, Floats, Sample, label, planted

#: A series whose range exceeds this many of its standard errors has changed and is not used for noise.
_UNCHANGED = 10.0
_FEWEST = 5
_LENGTH = 120

#: Series with less scatter than this between runs are reported separately: half of the series on the recorded H200.
QUIET = 0.001

#: Relative sizes of the steps planted in recorded noise; 0 is a series without a step.
SIZES = (0.0, 0.0025, 0.005, 0.01)


@dataclass(frozen=True, eq=False)
class RunNoise:
    """The noise of one recorded series between runs.

    Attributes:
        spread: standard deviation over the commits of the log ratio.
        errors: float64 [commits], the standard errors from the series' intervals.
        shape: float64 [commits], the deviations of the series from its mean, in units of ``spread``.
    """

    spread: float
    errors: Floats
    shape: Floats


def run_noise(folder: Path) -> list[RunNoise]:
    """Return the noise of every series of paired ratios in ``folder/*.provenance.jsonl`` that did not change.

    Raises:
        RecordError: a file cannot be read.
    """
    ratios: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for record in read_records(path)[1]:
            ratio = record.speedup
            if ratio is None or record.state != "ok" or record.variant == record.baseline or record.epochs < 2:
                continue
            half = (math.log(ratio.high) - math.log(ratio.low)) / 2
            error = half / t_quantile(0.5 + NOMINAL / 2, record.epochs - 1)
            if error > 0:
                ratios[record.key].append((math.log(ratio.value), error))
    noises = []
    for points in ratios.values():
        y, errors = np.array(points).T
        if y.size >= _FEWEST and 0 < np.ptp(y) < _UNCHANGED * median(errors):
            spread = float(y.std(ddof=1))
            noises.append(RunNoise(spread, errors, (y - y.mean()) / (spread * math.sqrt(1 - 1 / y.size))))
    if not noises:
        raise RecordError(f"{folder} has no series with at least {_FEWEST} commits, intervals and no change in it")
    return noises


def from_recorded(rng: np.random.Generator, noises: list[RunNoise], count: int) -> list[Sample]:
    """Make ``count`` series for each of ``SIZES`` from recorded noise, with a step of that size planted.

    Spread and standard errors come from one recorded series, drawn at random, the shape of the noise from all of them.
    """
    shape = np.concatenate([noise.shape for noise in noises])
    samples = []
    for size in SIZES:
        for _ in range(count):
            noise = noises[rng.integers(len(noises))]
            y = noise.spread * rng.choice(shape, _LENGTH)
            errors = rng.choice(noise.errors, _LENGTH)
            steps = (int(rng.integers(FIRST, LAST + 1)),) if size else ()
            spread = noise.spread

            def density(residuals: Floats, spread: float = spread) -> Floats:
                log_density: Floats = -0.5 * (residuals / spread) ** 2
                return log_density

            quiet = "≤" if spread <= QUIET else ">"
            name = f"recorded {quiet} {100 * QUIET:g} %, {label(size)}"
            samples.append(planted(rng, name, y, steps, (size,) if size else (), density, errors))
    return samples
