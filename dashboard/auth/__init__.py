"""Identify who sends a request, decide what it may do, and set the headers of every answer."""
