"""Hold what the tuners of kernels choose, so that equal kernels run in one configuration everywhere."""
