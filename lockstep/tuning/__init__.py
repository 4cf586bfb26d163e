"""Time a family's candidates and write the winners to the table of this GPU."""
