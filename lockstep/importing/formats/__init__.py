"""Read the result files of other benchmark tools, one module a tool."""
