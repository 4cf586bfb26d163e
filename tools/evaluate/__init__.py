"""Score our detector on series with known changes, beside other methods and two upper bounds, "ideal" and "oracle"."""
