"""One module a page: what it shows, and its callbacks."""
