"""What must be settled before anything is imported.

Tests run Triton kernels through its interpreter. Their products are small, and threads that wait for more of them take
longer than the products: with two threads test_grouped.py took 24 s of CPU, with one 10.
"""

import contextlib
import gc
import os
import sys

if not os.environ.get("LOCKSTEP_TEST_GPU"):
    os.environ["TRITON_INTERPRET"] = "1"
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

from browser import chromium, visit, window

__all__ = ["chromium", "visit", "window"]


# Importing a hundred modules of tests makes hardly any garbage, and no module ever becomes any: a process that does not
# look for it there, and least of all at its end, takes 3 s less.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on there is garbage."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """DuckDB's module would complain of what is left of it."""
    gc.unfreeze()


def pytest_configure() -> None:
    """Keep bytecode, have hypothesis draw the same examples every time, and let them take their time."""
    # The environment may ask for no bytecode, but some three hundred processes import the same modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    with contextlib.suppress(ImportError):  # a GPU host that runs the kernels' tests may lack it
        from hypothesis import HealthCheck, settings

        slow = [HealthCheck.too_slow]
        settings.register_profile("lockstep", derandomize=True, deadline=None, suppress_health_check=slow)
        settings.load_profile("lockstep")
