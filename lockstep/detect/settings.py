"""The few numbers that the detector stands on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How sure, how early, how patient. The defaults need no tuning; ``docs/detection.md`` says what each buys.

    Attributes:
        burn_in: measured points before anything is reported; the noise is first guessed from them.
        burn_in_known: the same where every point so far has an error.
        evidence: log odds, step against none, at which a change is reported when three points show it.
        patience: how fast that bar falls as more points show it: by ``patience · log(n / 3)``, where n is the
            harmonic size of the two segments. Many more chances of three odd points in a row come by than of thirty.
        withdraw: log odds, none against step, at which a reported change is withdrawn; below 0 while a step is still
            the likelier.
        novelty: log odds against a change at any one commit, before the data are seen.
        run: points at the new level before a change is reported.
        early: log odds by which the bar is raised for a step among the points that the noise was first guessed from,
            while nothing else tells of the noise.
        unsettled: cost of a point where the points agree on no level. An odd point costs ``gate²``, because odd points
            are rare; here they are not.
        lost: how much less than at the old level the points must cost in a row for the level to be lost: four odd
            points, or more with others in between.
        settles: commits after which points that agree on no level are a level with more noise.
        gate: a point that lies further off its level than this many standard deviations counts as an outlier.
        wander: standard deviation of the slow wandering about a level that is no change, in units of the noise.
        memory: correlation of that wandering from one commit to the next.
        prompt: commits within which ``Analysis.mde`` is to be reported.
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
