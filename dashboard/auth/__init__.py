"""Identify the sender of a request, decide what the request may do, and set the headers of every answer."""
