"""Measure base and head in turn, in one worker process, until each case is decided."""
