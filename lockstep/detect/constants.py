"""Define the settings of the detector: how certain and how fast it is. The settings suit every series."""

from __future__ import annotations

#: Log odds of a change against no change at which a change is reported, if three points show it.
EVIDENCE = 4.0

#: How fast the threshold ``EVIDENCE`` falls with more points: by ``PATIENCE · log(n / 3)``, where n is the harmonic
#: size of the two levels. Three outliers in a row occur by chance more often than thirty.
PATIENCE = 1.25

#: Log odds against a change at any one commit, before the data are seen.
NOVELTY = 5.0

#: Number of points at the new level before a change is reported.
RUN = 3

#: Additional log odds that a change among the first ``BURN_IN`` points needs, because their noise is not well known.
EARLY = 6.0
BURN_IN = 10

#: A point farther off its level than this many standard deviations counts as an outlier.
GATE = 3.4

#: Standard deviation of slow wandering about a level, in units of the noise. Wandering is not a change.
WANDER = 0.3

#: Correlation of the wandering from one commit to the next.
MEMORY = 0.9

#: Log odds that the scatter of the points beside a change must leave, whatever the noise of the series is.
BESIDE = 8.5

#: Number of points on each side of a change that is plainly there, and by how many times the gap between the sides
#: exceeds the larger side's range.
PLAIN_POINTS, PLAIN_GAP = 5, 2.0

#: The same for a change among the first ``BURN_IN`` points, where other changes need more evidence. Of six points of
#: normal noise, 2 in 100,000 lie so; with outliers (Student's t, 3 degrees of freedom) 1 in 100,000.
EARLY_PLAIN_POINTS, EARLY_PLAIN_GAP = 3, 8.0

#: A step of the newest two points is unconfirmed. It is named if these points and the ten before lie apart by
#: ``PLAIN_GAP`` times the larger range. In nine histories of other projects 93 % of them became changes.
NEWEST_POINTS, POINTS_BEFORE, SURE = 2, 10, 0.9

#: Number of newest points that the detector looks at. Earlier changes stay as they are.
WINDOW = 128

#: Number of commits within which a change of the size ``Analysis.mde`` is reported with 80 % probability.
PROMPT = 3

#: Maximum number of hypotheses about the beginning of the present level.
WIDTH = 12
