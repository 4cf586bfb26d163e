"""What changed in a series, how noisy it is, and what it could have shown.

Pure functions on arrays: no files, no clock, no randomness. ``docs/detection.md`` has the method and its figures.
"""

from dashboard.changes.analysis import Monitor, analyse, analyse_many
from dashboard.changes.findings import Analysis, Change, Level, Noise, Revision
from dashboard.changes.settings import Settings
from dashboard.changes.trend import Trend

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
