"""Trace a case without a GPU: its launches, its calls of torch, and the memory that it allocates."""
