"""What changed in a series, how noisy it is, and what it could have shown.

Pure functions on arrays: no files, no clock, no randomness. ``docs/detection.md`` has the method and its figures.
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
