"""Charts as plain Plotly dictionaries, and the theme that they share."""
