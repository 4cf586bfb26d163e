"""Alerts: find changes and their causes, group them, and track each alert until it is closed."""
