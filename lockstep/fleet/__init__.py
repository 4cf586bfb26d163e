"""Measure a history on several GPUs: shards, launchers that start them, and the merging of their results."""
