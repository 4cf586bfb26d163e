"""Bind variants to buffers, capture them as replays, and verify the replays."""
