"""Run pip in a process that ends when its parent ends."""

from __future__ import annotations

import runpy

from lockstep.processes.end_with_parent import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
