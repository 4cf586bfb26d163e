"""What a repository declares: its suites, its packages under test, and the thresholds of a change."""
