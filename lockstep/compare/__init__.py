"""Compare two measurements of a series: the verdict, and the rows that pages and the API show."""
