"""Time a family's candidate configurations and write the fastest to the tuning table of this GPU."""
