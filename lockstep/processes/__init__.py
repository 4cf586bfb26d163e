"""Start, watch and end child processes."""
