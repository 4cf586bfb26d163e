"""Measure costs besides the latency: host time, energy, and the time behind another kernel."""
