"""The scoreboard: our detector, others' and an oracle on the same series, with the truth known."""
