"""One module per layout, in the order of their numbers."""
