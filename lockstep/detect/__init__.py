"""Find the changes of a series, estimate its noise, and state the smallest change that could be found in it.

The functions use only their arguments, which are arrays: no files, no clock, no random numbers. ``docs/detection.md``
describes the method and its measured quality.
"""

from lockstep.detect.find_changes import analyse, analyse_many, continue_many
from lockstep.detect.findings import Analysis, Change, Level, Noise, Trend

__all__ = ["Analysis", "Change", "Level", "Noise", "Trend", "analyse", "analyse_many", "continue_many"]
