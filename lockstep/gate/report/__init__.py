"""The gate's report: its model, and its forms for terminals, GitHub and comments."""
