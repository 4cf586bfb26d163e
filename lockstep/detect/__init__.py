"""Find the changes of a series, its noise, and the smallest change that it could show.

The functions are pure functions on arrays: no files, no clock, no randomness. ``docs/detection.md`` describes the
method and its measured quality.
"""

from lockstep.detect.analysis import Monitor, analyse, analyse_many
from lockstep.detect.findings import Analysis, Change, Level, Noise, Revision
from lockstep.detect.settings import Settings
from lockstep.detect.trend import Trend

__all__ = [
    "Analysis",
    "Change",
    "Level",
    "Monitor",
    "Noise",
    "Revision",
    "Settings",
    "Trend",
    "analyse",
    "analyse_many",
]
