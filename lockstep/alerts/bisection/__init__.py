"""Find the first bad commit of a range."""
