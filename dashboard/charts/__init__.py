"""Charts as plain Plotly dictionaries, and their common theme."""
