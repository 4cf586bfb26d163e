"""Measure one case: buffers, calls, interleaved rounds, controls and estimates."""
