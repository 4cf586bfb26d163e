"""Start the shards of a fleet: one module for each way, with a launcher of the same three methods."""
