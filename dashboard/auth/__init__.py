"""Decide who asks, what they may do, and what every answer must carry."""
