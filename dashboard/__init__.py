"""What is shown and decided: results, then pages. Reads files, never a GPU."""
