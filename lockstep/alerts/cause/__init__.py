"""Find why a series changed: the commits between two points, the facts recorded with them, and the cause."""
