"""Tests run Triton kernels through its interpreter, which must be chosen before triton is imported."""

import os
import sys

if not os.environ.get("LOCKSTEP_TEST_GPU"):
    os.environ["TRITON_INTERPRET"] = "1"

from browser import chromium, visit

__all__ = ["chromium", "visit"]


def pytest_configure() -> None:
    """Keep bytecode though the environment may ask for none: some three hundred processes import the same modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
