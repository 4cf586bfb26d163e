"""Compile traced kernels, read the compiled files, and describe the compiler."""
