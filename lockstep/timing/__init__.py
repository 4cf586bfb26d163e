"""Measure one case: buffers, calls, interleaved rounds, controls, and the estimates that follow."""
