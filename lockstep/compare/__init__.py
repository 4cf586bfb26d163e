"""Compare two measurements of a series, and make the rows that pages and the API show."""
