"""Check outputs against a reference: values, memory, and tolerance."""
