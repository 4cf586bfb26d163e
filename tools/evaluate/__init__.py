"""Score our detector, other methods, an ideal and an oracle on series with known changes."""
