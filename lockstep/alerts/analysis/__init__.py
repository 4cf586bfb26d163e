"""Analyse all machines' results for changes; store the findings for the next analysis and for the pages."""
