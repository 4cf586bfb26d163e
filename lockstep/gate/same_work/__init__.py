"""Observe in captured CUDA graphs whether base and head give the GPU the same work."""
