"""Benchmark definitions: one module of suites per family, named like the family's module in ``kernels``."""
