"""Watch the code under test while it is traced, and find the reasons that make a trace untrusted."""
