"""Find the source files that a case depends on, in a commit or in the working tree."""
