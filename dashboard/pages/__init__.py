"""One module per page: its layout, and its callbacks."""
