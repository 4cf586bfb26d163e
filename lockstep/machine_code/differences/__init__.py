"""Compare the code of two trees, or of two compilers, and report the differences."""
