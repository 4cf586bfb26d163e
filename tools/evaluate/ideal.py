"""The most that anybody could find: Bayes' rule, told everything but whether, where and which way a step came.

The ideal knows how points scatter, wander and stray, the size of the step (or the sizes that it is drawn from) and the
commits that it may lie in; not the level. For each place and way it follows the likelihood of the points so far. Their
sum over the likelihood of no step is the best there is to ring by, by the lemma of Neyman and Pearson (as a rule to
stop by: Shiryaev 1963), and their shares are the best to place a step by. Each hypothesis is a Kalman filter with a
level and a wandering about it, in which a point is odd with the probability that it has; the two cases are merged into
one normal of the same mean and variance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from tools.evaluate.samples import FIRST, LAST, STRAY, Floats, Sample, label
from tools.evaluate.scoring import ABOUT, MATCH, Alarm, Outcome, judge

Ints = NDArray[np.int64]

#: False alarms, or claims in the end, per 1000 commits without a step: what is allowed.
FALSE = 0.5
#: F1 that is asked for.
ENOUGH = 0.87

#: Standard deviation of what is known of a level beforehand, log units: next to nothing.
_VAGUE = 0.1
#: Density of a point that nothing explains: whatever comes, every hypothesis keeps a likelihood.
_NEVER = 1e-12
#: Series followed together: as many as keep their hypotheses in the processor's cache.
_TOGETHER = 50
#: The ways that a step may go [ways, places, series].
_WAYS = np.array([1.0, -1.0])[:, None, None]


def ringing(samples: Sequence[Sample]) -> list[Outcome]:
    """What would ring for one who is told the size of each row's steps, the bar set by ``FALSE``.

    Args:
        samples: those with a law are judged, each row of steps beside the row without that belongs to it.

    Returns:
        an outcome for each sample with a step, and one a size for each without.
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
        without = _replay(quiet, size)
        peaks = np.sort([evidence.max() for evidence, _, _ in without])[::-1]
        allowed = int(FALSE / 1000 * sum(len(sample.trend) for sample in quiet))
        bar = peaks[allowed] if quiet else np.inf
        told = [*_replay(stepped, size), *without]
        for sample, (evidence, modes, place) in zip([*stepped, *quiet], told, strict=True):
            alarms = _alarms(evidence > bar, modes)
            claimed = [place] if alarms else []
            outcomes.append(judge(sample.kind, len(sample.trend), sample.steps, claimed, alarms))
    return outcomes


def seeing(samples: Sequence[Sample], sizes: Sequence[float]) -> tuple[list[Outcome], list[Outcome]]:
    """What one who sees the whole series would claim who is told the lottery: no step, or one of ``sizes``, all alike.

    Args:
        samples: of the standard rows; all are judged.
        sizes: relative sizes, without 0; only their rows and the one without a step count for F1.

    Returns:
        outcomes of the samples with the highest F1 there is, and with the most recall at ``ENOUGH`` F1 and
        ``FALSE`` claims.
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
    best, most = (
        [
            judge(sample.kind, len(sample.trend), sample.steps, [int(place)] if share >= bar else [], None)
            for sample, place, share in zip(samples, places, shares, strict=True)
        ]
        for bar in bars
    )
    return best, most


def follow(samples: Sequence[Sample], size: float) -> Iterator[Floats]:
    """The log likelihood of what has been seen, commit by commit, for each way and place of a step.

    Args:
        samples: of one length, with no gaps; each with a law.
        size: of the step, relative.

    Yields:
        float64 [ways, places, series] after each commit; place 0 stands for no step. A place that no step may lie
        in, or none yet, has minus infinity. The array is overwritten by the next.
    """
    y = np.log([sample.trend.values for sample in samples]).T
    laws = [sample.law for sample in samples if sample.law is not None]
    noise, drift, memory, odd = (
        np.array([getattr(law, name) for law in laws]) for name in ("noise", "drift", "memory", "odd")
    )
    shape = 2, y.shape[0], y.shape[1]
    level, wandering, covariance = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    var_level, var_wandering = np.full(shape, _VAGUE**2), np.broadcast_to(drift**2, shape).copy()
    found = np.full(shape, -np.inf)
    found[:, 0] = 0.0
    moves = np.where(np.arange(shape[1])[:, None] > 0, _WAYS * np.log1p(size), 0.0)
    for now in range(shape[1]):
        if now:
            wandering *= memory
            covariance *= memory
            var_wandering += (1 - memory**2) * (drift**2 - var_wandering)
        if FIRST <= now <= LAST:
            for array in (level, wandering, var_level, covariance, var_wandering, found):
                array[:, now] = array[:, 0]
        live = np.r_[0, FIRST : min(now, LAST) + 1]
        to_level, to_wandering = var_level[:, live] + covariance[:, live], covariance[:, live] + var_wandering[:, live]
        spread = to_level + to_wandering + noise**2
        error = y[now] - moves[:, live] - level[:, live] - wandering[:, live]
        usual = np.log(1 - odd) - 0.5 * (error**2 / spread + np.log(2 * np.pi * spread))
        either = np.logaddexp(usual, np.log(odd * _stray(error, np.sqrt(spread)) + _NEVER))
        share = np.exp(usual - either)
        found[:, live] += either
        gain_level, gain_wandering = to_level / spread, to_wandering / spread
        told = share * (spread - (1 - share) * error**2)
        level[:, live] += share * gain_level * error
        wandering[:, live] += share * gain_wandering * error
        var_level[:, live] -= gain_level**2 * told
        covariance[:, live] -= gain_level * gain_wandering * told
        var_wandering[:, live] -= gain_wandering**2 * told
        yield found


def _stray(error: Floats, spread: Floats) -> Floats:
    """Density of an odd point: as far off as ``STRAY`` says, all log distances alike, and the usual noise on top."""
    low, high = np.log1p(STRAY)
    found: Floats = (ndtr((error - low) / spread) - ndtr((error - high) / spread)) / (high - low)
    return found


def _replay(samples: Sequence[Sample], size: float) -> list[tuple[Floats, list[int], int]]:
    """The log evidence of a step after each commit, its likeliest place then, and its best in the end, by series."""
    found = []
    for first in range(0, len(samples), _TOGETHER):
        part = samples[first : first + _TOGETHER]
        evidence, modes = [], []
        for state in follow(part, size):
            steps = logsumexp(state[:, 1:], axis=0)
            evidence.append(logsumexp(steps, axis=0) - state[0, 0])
            modes.append(steps.argmax(axis=0) + 1)
        places, _ = _best(np.exp(steps - steps.max(axis=0)))
        found += list(zip(np.transpose(evidence), np.transpose(modes).tolist(), places.tolist(), strict=True))
    return found


def _posterior(samples: Sequence[Sample], sizes: Sequence[float]) -> tuple[Ints, Floats]:
    """The best place of each series, and the probability that it is right."""
    places, shares = [], []
    for first in range(0, len(samples), _TOGETHER):
        part = samples[first : first + _TOGETHER]
        whole = [_last(follow(part, size)) for size in sizes]
        steps = logsumexp(whole, axis=(0, 1))[1:] - np.log(2 * (LAST - FIRST + 1))
        none = whole[0][0, 0]
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
    """The place with the most share [places, series] within ``MATCH``, and that share; the first row is place 1."""
    padded = np.pad(shares, ((MATCH, MATCH), (0, 0)))
    near = np.sum([padded[shift : shift + shares.shape[0]] for shift in range(2 * MATCH + 1)], axis=0)
    return near.argmax(axis=0) + 1, near.max(axis=0)


def _alarms(above: NDArray[np.bool_], modes: Sequence[int]) -> list[Alarm]:
    """An alarm each time that the bar is crossed, unless for a place that was told."""
    found: list[Alarm] = []
    for now in np.flatnonzero(above & ~np.r_[False, above[:-1]]).tolist():
        if all(abs(modes[now] - alarm.index) > MATCH for alarm in found):
            found.append(Alarm(modes[now], now))
    return found
