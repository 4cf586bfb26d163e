"""Compare the compile times of base and head in pairs of processes."""
