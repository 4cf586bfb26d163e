"""The rules that disqualify a number, and the detectors that need no timing."""
