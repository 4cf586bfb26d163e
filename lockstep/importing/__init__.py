"""Import results of other benchmark tools as asv's result files."""
