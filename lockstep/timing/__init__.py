"""Measure one case: prepare buffers, check results, time the variants in interleaved rounds, and compute estimates."""
