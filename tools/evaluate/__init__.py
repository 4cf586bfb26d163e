"""Score our detector, others, an ideal and an oracle on series with known changes."""
