"""One module a layout, in the order of their numbers."""
