"""The process that runs pip, and ends with its parent."""

from __future__ import annotations

import runpy

from lockstep.processes.children import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
