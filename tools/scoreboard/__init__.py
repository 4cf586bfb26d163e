"""The recorded results beside their targets, as one page of the documentation."""
