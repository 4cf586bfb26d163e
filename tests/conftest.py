"""What must be settled before anything is imported.

Tests run Triton kernels through its interpreter. Their products are small, and threads that wait for more of them take
longer than the products: with two threads test_grouped.py took 24 s of CPU, with one 10.
"""

import os
import sys

if not os.environ.get("LOCKSTEP_TEST_GPU"):
    os.environ["TRITON_INTERPRET"] = "1"
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

from browser import chromium, visit

__all__ = ["chromium", "visit"]


def pytest_configure() -> None:
    """Keep bytecode though the environment may ask for none: some three hundred processes import the same modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
