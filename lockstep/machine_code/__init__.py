"""Find out, on a machine without a GPU, which code each case runs: trace its launches and compile its kernels.

``docs/machine-code.md`` says what is compared and what a trace can miss.
"""
