"""The ideal detector, an upper bound for every detector: it knows all but whether, where and which way the level steps.

The ideal knows the noise, the drift and the outliers, the size of the step (or the sizes from which it is drawn) and
the commits at which a step may lie. It does not know the level. For each commit and direction of a step it computes the
likelihood of the points so far. The sum of these likelihoods over the likelihood of no step is the optimal statistic
for an alarm, by the lemma of Neyman and Pearson (as a stopping rule: Shiryaev 1963). The commit with the largest share
of the sum is the optimal estimate of the step's commit. Each hypothesis is a Kalman filter of a level and a drift about
it. A point is an outlier with a known probability; both cases are merged into one normal distribution of the same mean
and variance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from tools.evaluate.samples import FIRST, LAST, STRAY, Floats, Sample, label
from tools.evaluate.scoring import ABOUT, MATCH, Alarm, Outcome, Told, judge

Ints = NDArray[np.int64]

#: False alarms, or false final changes, allowed per 1000 commits without a step.
FALSE = 0.5
#: F1 that the final changes "most recall" must reach.
ENOUGH = 0.87

#: Standard deviation of the prior of a level, log units: nearly uninformative.
_VAGUE = 0.1
#: Density of a point that nothing explains, so that every hypothesis keeps a likelihood.
_NEVER = 1e-12
#: Series processed together. With more series their hypotheses would not fit in the processor's cache.
_TOGETHER = 50
#: Directions of a step [ways, places, series].
_WAYS = np.array([1.0, -1.0])[:, None, None]


def ringing(samples: Sequence[Sample]) -> list[Outcome]:
    """Score the online alarms of the ideal detector, which knows the size of each row's steps.

    The threshold is set so that the row without a step has ``FALSE`` alarms per 1000 commits.

    Args:
        samples: those with a ``law`` are scored: each row of series with steps, together with its row without steps.

    Returns:
        one outcome for each sample with a step, and one for each step size for each sample without a step.
    """
    rows: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.law is not None:
            rows[sample.kind].append(sample)
    outcomes = []
    for kind, stepped in rows.items():
        if not stepped[0].steps:
            continue
        size = round(float(np.expm1(abs(stepped[0].sizes[0]))), 9)
        quiet = rows.get(kind.removesuffix(label(size)) + label(0), [])  # few series may have drawn none
        quiet_replays = _replay(quiet, size)
        peaks = np.sort([evidence.max() for evidence, _, _ in quiet_replays])[::-1]
        allowed = int(FALSE / 1000 * sum(len(sample.trend) for sample in quiet))
        bar = peaks[allowed] if quiet else np.inf
        replays = [*_replay(stepped, size), *quiet_replays]
        for sample, (evidence, modes, place) in zip([*stepped, *quiet], replays, strict=True):
            alarms = _alarms(evidence > bar, modes)
            claimed = [Told(place)] if alarms else []
            outcomes.append(judge(sample.kind, len(sample.trend), sample.steps, claimed, alarms))
    return outcomes


def seeing(samples: Sequence[Sample], sizes: Sequence[float]) -> tuple[list[Outcome], list[Outcome]]:
    """Score the final changes of the ideal detector, which sees a whole series and expects no step or one of ``sizes``.

    Args:
        samples: samples of the standard rows; all are scored.
        sizes: relative sizes of the steps, without 0. Only their rows and the row without a step count for F1.

    Returns:
        the outcomes with the threshold of the highest F1, and with that of the highest recall that still has an F1 of
        ``ENOUGH`` and at most ``FALSE`` false changes.
    """
    places, shares = _posterior(samples, sizes)
    steps = np.array([sample.steps[0] if sample.steps else -ABOUT for sample in samples])
    right = np.abs(places - steps) <= MATCH
    counts = np.isin([sample.kind for sample in samples], [label(size) for size in (0.0, *sizes)])
    quiet = steps < 0
    commits = sum(len(sample.trend) for sample in samples if not sample.steps)
    order = np.argsort(-shares)
    claimed = np.cumsum(counts[order])
    f1 = 2 * np.cumsum((right & counts)[order]) / (np.count_nonzero(counts & ~quiet) + claimed)
    false = 1000 * np.cumsum(quiet[order]) / max(commits, 1)
    fair = np.flatnonzero((f1 >= ENOUGH) & (false <= FALSE))
    bars = shares[order[f1.argmax()]], shares[order[fair[-1] if fair.size else f1.argmax()]]
    best, most_recall = (
        [
            judge(sample.kind, len(sample.trend), sample.steps, [Told(int(place))] if share >= bar else [], None)
            for sample, place, share in zip(samples, places, shares, strict=True)
        ]
        for bar in bars
    )
    return best, most_recall


def follow(samples: Sequence[Sample], size: float) -> Iterator[Floats]:
    """Yield after each commit the log likelihood of the points so far, for each direction and place of a step.

    Args:
        samples: samples of one length, without gaps, each with a law.
        size: relative size of the step.

    Yields:
        float64 [ways, places, series] after each commit; place 0 stands for no step. A place in which no step may lie,
        or not yet, has minus infinity. The next yield overwrites the array.
    """
    y = np.log([sample.trend.values for sample in samples]).T
    laws = [sample.law for sample in samples if sample.law is not None]
    noise, drift, memory, outlier_share = (
        np.array([getattr(law, name) for law in laws]) for name in ("noise", "drift", "memory", "odd")
    )
    shape = 2, y.shape[0], y.shape[1]
    level, wandering, covariance = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    var_level, var_wandering = np.full(shape, _VAGUE**2), np.broadcast_to(drift**2, shape).copy()
    log_likelihood = np.full(shape, -np.inf)
    log_likelihood[:, 0] = 0.0
    moves = np.where(np.arange(shape[1])[:, None] > 0, _WAYS * np.log1p(size), 0.0)
    for now in range(shape[1]):
        if now:
            wandering *= memory
            covariance *= memory
            var_wandering += (1 - memory**2) * (drift**2 - var_wandering)
        if FIRST <= now <= LAST:
            for array in (level, wandering, var_level, covariance, var_wandering, log_likelihood):
                array[:, now] = array[:, 0]
        live = np.r_[0, FIRST : min(now, LAST) + 1]
        to_level, to_wandering = var_level[:, live] + covariance[:, live], covariance[:, live] + var_wandering[:, live]
        spread = to_level + to_wandering + noise**2
        error = y[now] - moves[:, live] - level[:, live] - wandering[:, live]
        usual = np.log(1 - outlier_share) - 0.5 * (error**2 / spread + np.log(2 * np.pi * spread))
        either = np.logaddexp(usual, np.log(outlier_share * _stray(error, np.sqrt(spread)) + _NEVER))
        share = np.exp(usual - either)
        log_likelihood[:, live] += either
        gain_level, gain_wandering = to_level / spread, to_wandering / spread
        variance_reduction = share * (spread - (1 - share) * error**2)
        level[:, live] += share * gain_level * error
        wandering[:, live] += share * gain_wandering * error
        var_level[:, live] -= gain_level**2 * variance_reduction
        covariance[:, live] -= gain_level * gain_wandering * variance_reduction
        var_wandering[:, live] -= gain_wandering**2 * variance_reduction
        yield log_likelihood


def _stray(error: Floats, spread: Floats) -> Floats:
    """Return the density of an outlier's error: ``STRAY`` too high, uniform in log distance, plus the usual noise."""
    low, high = np.log1p(STRAY)
    density: Floats = (ndtr((error - low) / spread) - ndtr((error - high) / spread)) / (high - low)
    return density


def _replay(samples: Sequence[Sample], size: float) -> list[tuple[Floats, list[int], int]]:
    """Return for each series the log evidence of a step and its likeliest place by commit, and the final place."""
    replays = []
    for first in range(0, len(samples), _TOGETHER):
        part = samples[first : first + _TOGETHER]
        evidence, modes = [], []
        for state in follow(part, size):
            steps = logsumexp(state[:, 1:], axis=0)
            evidence.append(logsumexp(steps, axis=0) - state[0, 0])
            modes.append(steps.argmax(axis=0) + 1)
        places, _ = _best(np.exp(steps - steps.max(axis=0)))
        replays += list(zip(np.transpose(evidence), np.transpose(modes).tolist(), places.tolist(), strict=True))
    return replays


def _posterior(samples: Sequence[Sample], sizes: Sequence[float]) -> tuple[Ints, Floats]:
    """Return for each series the likeliest place of a step, and the probability that the place is right."""
    places, shares = [], []
    for first in range(0, len(samples), _TOGETHER):
        part = samples[first : first + _TOGETHER]
        log_likelihoods = [_last(follow(part, size)) for size in sizes]
        steps = logsumexp(log_likelihoods, axis=(0, 1))[1:] - np.log(2 * (LAST - FIRST + 1))
        none = log_likelihoods[0][0, 0]
        total = np.logaddexp(logsumexp(steps, axis=0), none)
        place, share = _best(np.exp(steps - total))
        places.append(place)
        shares.append(share)
    return np.concatenate(places), np.concatenate(shares)


def _last(states: Iterator[Floats]) -> Floats:
    for state in states:
        last = state
    return last


def _best(shares: Floats) -> tuple[Ints, Floats]:
    """Return for each series the place around which ``MATCH`` places have the largest share together, and that share.

    ``shares`` is [places, series]; row 0 is place 1.
    """
    padded = np.pad(shares, ((MATCH, MATCH), (0, 0)))
    probability = np.sum([padded[shift : shift + shares.shape[0]] for shift in range(2 * MATCH + 1)], axis=0)
    return probability.argmax(axis=0) + 1, probability.max(axis=0)


def _alarms(above: NDArray[np.bool_], modes: Sequence[int]) -> list[Alarm]:
    """Return an alarm for each crossing of the threshold, except for a place that was already reported."""
    alarms: list[Alarm] = []
    for now in np.flatnonzero(above & ~np.r_[False, above[:-1]]).tolist():
        if all(abs(modes[now] - alarm.index) > MATCH for alarm in alarms):
            alarms.append(Alarm(modes[now], now))
    return alarms
