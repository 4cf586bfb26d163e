"""The GPU as NVML knows it: identity, clocks, clock locks, and the toolchain that compiles for it."""
