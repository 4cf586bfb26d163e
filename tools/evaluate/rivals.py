"""Other methods of change detection: each takes a series and returns the indices at which its level changes.

A method takes values in commit order. The caller leaves out commits without a value, and maps the indices back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from tools.evaluate.samples import Floats, Sample, on_scale

Detect = Callable[[Floats], list[int]]


@dataclass(frozen=True)
class Rival:
    """One method of change detection.

    Attributes:
        name: name of the method in the tables.
        replays: number of series of each kind that are replayed online, so that it takes no hours.
    """

    name: str
    detect: Detect
    replays: int = 200


def asv(values: Floats) -> list[int]:
    """Run asv's ``step_detect`` (L1 Potts fit), and return every step of any size."""
    # Imported here: asv is slow to import.
    from asv.step_detect import detect_steps

    steps = detect_steps(values.tolist())
    return [int(after[0]) for before, after in itertools.pairwise(steps) if after[2] != before[2]]


def kernel(values: Floats) -> list[int]:
    """Run KernelCPD of ruptures with an rbf kernel and penalty 5 (Arlot, Celisse, Harchaoui 2019)."""
    # Imported here: ruptures is slow to import.
    import ruptures

    y = on_scale(values)
    if y.size < 4:
        return []
    return [int(place) for place in ruptures.KernelCPD("rbf", min_size=2).fit(y[:, None]).predict(pen=5)[:-1]]


def pelt(values: Floats) -> list[int]:
    """Run PELT of ruptures with an l1 cost in units of the noise, penalty 10 (Killick, Fearnhead, Eckley 2012)."""
    # Imported here: ruptures is slow to import.
    import ruptures

    y = on_scale(values)
    noise = float(np.median(np.abs(np.diff(y)))) / 0.954 if y.size > 6 else 0.0
    if noise <= 0:
        return []
    search = ruptures.Pelt("l1", jump=1, min_size=3).fit((y / noise)[:, None])
    return [int(place) for place in search.predict(pen=10)[:-1]]


def otava(values: Floats) -> list[int]:
    """Run Apache Otava's detector, E-divisive with a t-test, at its defaults (Fleming et al. 2023)."""
    # Imported here: Otava need not be installed.
    from otava.analysis import compute_change_points

    if values.size < 4:
        return []
    # Otava 0.8 cuts windows only out of a list: it takes an array as one window.
    found, _ = compute_change_points(values.tolist(), window_len=50, max_pvalue=0.001, min_magnitude=0.0)
    return [int(change.index) for change in found]


def oracle(sample: Sample) -> int | None:
    """Return the likeliest commit of a step, given that there is one, its size and sign, the level and the noise.

    ``None`` for a sample without a density, or that has not exactly one step. No detector can place a step better.
    """
    if len(sample.steps) != 1 or sample.density is None:
        return None
    y = np.log(sample.trend.values)
    gain = np.nan_to_num(sample.density(y - sample.sizes[0]) - sample.density(y))
    after = np.cumsum(gain[::-1])[::-1]
    return int(after[1:].argmax()) + 1


#: Left out on Python 3.14, for which ruptures has no wheel.
_RUPTURES = (Rival("KernelCPD rbf", kernel), Rival("PELT l1", pelt, 1)) if find_spec("ruptures") else ()
#: Otava is not a dependency: it pins numpy 2.2 and brings clients of Slack and BigQuery. Its detector needs neither:
#: ``pip install --no-deps apache-otava``.
RIVALS = (*_RUPTURES, Rival("asv", asv, 12), *([Rival("Otava", otava, 15)] if find_spec("otava") else []))
