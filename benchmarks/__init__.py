"""The ruler: one suite a family, of the same name as its module in ``kernels``."""
