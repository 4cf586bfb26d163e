"""Tests run Triton kernels through its interpreter, which must be chosen before triton is imported.

Bytecode is kept though the environment may ask for none: some three hundred processes import the same modules.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if not os.environ.get("LOCKSTEP_TEST_GPU"):
    os.environ["TRITON_INTERPRET"] = "1"

from browser import chromium, visit

__all__ = ["chromium", "visit"]
