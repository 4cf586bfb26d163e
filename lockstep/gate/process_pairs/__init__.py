"""Compare base and head in pairs of processes: compile times, and toolchains that cannot share a process."""
