"""Tests run Triton kernels through its interpreter, which must be chosen before triton is imported."""

import os

if not os.environ.get("LOCKSTEP_TEST_GPU"):
    os.environ["TRITON_INTERPRET"] = "1"

from browser import chromium, visit

__all__ = ["chromium", "visit"]
