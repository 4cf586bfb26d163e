"""Define the settings of the detector: how certain and how fast it is. The settings suit every series.

``docs/detection.md`` describes the effect of each setting.
"""

from __future__ import annotations

#: Number of measured points before anything is reported. The noise is first guessed from these points.
BURN_IN = 10

#: The number of points that replaces ``BURN_IN`` if every point so far has a standard error.
BURN_IN_KNOWN = 3

#: Log odds of a step against no step at which a change is reported, if three points show the change.
EVIDENCE = 6.0

#: How fast the threshold ``EVIDENCE`` falls with more points: by ``PATIENCE · log(n / 3)``, where n is the harmonic
#: size of the two segments. It falls because three outliers in a row occur by chance more often than thirty.
PATIENCE = 1.25

#: Log odds of no step against a step at which a reported change is withdrawn. If it is negative, a change is withdrawn
#: although the step is still more likely.
WITHDRAW = -2.0

#: Log odds against a change at any one commit, before the data are seen.
NOVELTY = 3.1

#: Number of points at the new level before a change is reported.
RUN = 3

#: Additional log odds that a step among the first ``BURN_IN`` points needs while no errors are known.
EARLY = 7.0

#: Cost of a point among unsettled points, which do not give a level. An outlier at a level costs ``GATE²``, because
#: outliers are rare there.
UNSETTLED = 5.0

#: The old level counts as lost if the newest points cost this much less without it. That takes four outliers in a row,
#: or more with other points in between.
LOST = 24.0

#: Number of commits after which unsettled points become a level with more noise.
SETTLES = 12

#: A point farther off its level than this many standard deviations counts as an outlier.
GATE = 3.4

#: Standard deviation of slow wandering about a level, in units of the noise. Wandering is not a change.
WANDER = 0.3

#: Correlation of the wandering from one commit to the next.
MEMORY = 0.9

#: Number of commits within which a change of the size ``Analysis.mde`` is reported with 80 % probability.
PROMPT = 3

#: Maximum number of hypotheses for each series.
WIDTH = 28
