"""Define the settings of the detector."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How certain and how fast the detector is. The defaults suit every series.

    ``docs/detection.md`` describes the effect of each setting.

    Attributes:
        burn_in: number of measured points before anything is reported. The noise is first guessed from these points.
        burn_in_known: the same number if every point so far has a standard error.
        evidence: log odds of a step against no step at which a change is reported, if three points show the change.
        patience: how fast this threshold falls with more points: by ``patience · log(n / 3)``, where n is the harmonic
            size of the two segments. It falls because three outliers in a row occur by chance more often than thirty.
        withdraw: log odds of no step against a step at which a reported change is withdrawn. If it is negative, a
            change is withdrawn although the step is still more likely.
        novelty: log odds against a change at any one commit, before the data are seen.
        run: number of points at the new level before a change is reported.
        early: additional log odds that a step among the first ``burn_in`` points needs while no errors are known.
        unsettled: cost of a point among unsettled points, which do not give a level. An outlier at a level costs
            ``gate²``, because outliers are rare there.
        lost: the old level counts as lost if the newest points cost this much less without it. That takes four
            outliers in a row, or more with other points in between.
        settles: number of commits after which unsettled points become a level with more noise.
        gate: a point farther off its level than this many standard deviations counts as an outlier.
        wander: standard deviation of slow wandering about a level, in units of the noise. Wandering is not a change.
        memory: correlation of the wandering from one commit to the next.
        prompt: number of commits within which a change of the size ``Analysis.mde`` is reported with 80 % probability.
        width: maximum number of hypotheses for each series.
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
