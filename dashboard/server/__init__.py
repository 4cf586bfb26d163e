"""Serve the dashboard: the Dash application, waitress and the verb ``lockstep dashboard``."""
