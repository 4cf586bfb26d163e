"""Time what a family leaves open, and write what wins into the table of this GPU."""
