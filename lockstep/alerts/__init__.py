"""Alerts: changes with their cause, grouped, followed from new to closed, and kept."""
