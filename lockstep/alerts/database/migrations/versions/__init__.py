"""The migrations of the alert database: one module for each layout, ordered by the numbers in their names."""
