"""Read the clocks of a GPU, compare them, and store the reference clock of a series."""
