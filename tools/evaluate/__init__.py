"""Score our detector on series with known changes and on recorded ones, beside other methods."""
