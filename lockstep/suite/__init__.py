"""What a repository states: its suites, the packages under test, the thresholds of a change."""
