"""The declarations of a repository: its suites, its packages under test, and its thresholds."""
