"""Serve the dashboard: the Dash application, gunicorn, connections and the verb ``lockstep dashboard``."""
