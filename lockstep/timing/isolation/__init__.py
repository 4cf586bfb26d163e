"""Measure a variant that runs in a process of its own, so that it reaches neither the clock nor the verdict."""
