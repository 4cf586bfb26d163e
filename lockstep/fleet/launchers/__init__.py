"""What starts the shards of a fleet: each engine is a module with a launcher of three methods."""
