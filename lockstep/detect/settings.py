"""The settings of the detector."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Certainty and speed of the detector. The defaults need no tuning; ``docs/detection.md`` gives each setting's
    effect.

    Attributes:
        burn_in: measured points before anything is reported; the first guess of the noise uses these points.
        burn_in_known: the same if every point so far has an error.
        evidence: log odds, step against no step, at which a change is reported if three points show the change.
        patience: how fast the threshold falls with more points: by ``patience · log(n / 3)``, where n is the harmonic
            size of the two segments. Three odd points in a row have many more chances to occur than thirty.
        withdraw: log odds, no step against step, at which a reported change is withdrawn; below 0 means that the step
            is still more likely.
        novelty: log odds against a change at any one commit, before the data are seen.
        run: points at the new level before a change is reported.
        early: log odds that a step among the first ``burn_in`` points needs in addition while no errors are known.
        unsettled: cost of a point if the points agree on no level. An odd point costs ``gate²`` because odd points are
            rare; among unsettled points they are not rare.
        lost: cost by which a run of points must be cheaper without the old level for the level to count as lost: four
            odd points, or more with others in between.
        settles: commits after which points that agree on no level become a level with more noise.
        gate: a point further off its level than this many standard deviations counts as an outlier.
        wander: standard deviation of slow wandering about a level, in units of the noise. Wandering is not a change.
        memory: correlation of the wandering from one commit to the next.
        prompt: number of commits within which a change of ``Analysis.mde`` is to be reported.
        width: hypotheses kept for each series.
    """

    burn_in: int = 10
    burn_in_known: int = 3
    evidence: float = 6.0
    patience: float = 1.25
    withdraw: float = -2.0
    novelty: float = 3.1
    run: int = 3
    unsettled: float = 5.0
    lost: float = 24.0
    settles: int = 12
    early: float = 7.0
    gate: float = 3.4
    wander: float = 0.3
    memory: float = 0.9
    prompt: int = 3
    width: int = 28


DEFAULT = Settings()
