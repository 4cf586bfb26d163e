"""The recorded results and their targets, as one page of the documentation."""
