"""The GPU as NVML reports it: identity, clocks, clock locks, and the toolchain that compiles for it."""
