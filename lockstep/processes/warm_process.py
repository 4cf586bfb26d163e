"""A process that has imported torch and becomes one worker after another, each time as a fork of itself.

The import of torch and Triton is most of the time that a worker takes to start. A fork takes milliseconds. Each fork
imports the code under test anew, creates its own CUDA context, and leaves nothing behind: a worker that fails takes
this process with it.

This program reads from standard input how to start a worker, as one line of JSON: ``{"module", "arguments",
"environment", "folder"}``. The lines that follow are the worker's. When the worker has ended, this program sends the
event ``idle``.

The variable ``PRELOAD`` names further modules to import once, separated by commas: libraries that the code under test
imports and that do not change from commit to commit.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from lockstep.processes.end_with_parent import PARENT, end_with_parent
from lockstep.processes.import_torch import load_torch
from lockstep.processes.started_process import PRELOAD


def main() -> None:
    """Import torch and Triton, then run the workers that the parent requests until standard input ends."""
    end_with_parent()
    replies = int(sys.argv[2])  # after "--reply"
    load_torch()
    for module in ("triton", *filter(None, os.environ.get(PRELOAD, "").split(","))):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    own = os.getpid()
    # Without a buffer: a buffer would swallow the requests that follow, which are the worker's.
    for line in iter(io.FileIO(0, closefd=False).readline, b""):
        start = json.loads(line)
        if "module" not in start:
            continue  # a request to end, for a worker that had ended already
        os.ftruncate(1, 0)
        os.lseek(1, 0, os.SEEK_SET)
        if not (worker := os.fork()):
            _become(start, own)
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        if status:
            _end_with(status)
        os.write(replies, b'{"event": "idle"}\n')


def _become(start: Mapping[str, Any], parent: int) -> NoReturn:
    """Run the worker's module as the main program of this process, and end without taking the interpreter down."""
    os.setpgid(0, 0)  # so that what the worker leaves behind is killed with its group
    os.chdir(start["folder"])
    os.environ.clear()
    os.environ.update({**start["environment"], PARENT: str(parent)})
    sys.argv[1:] = start["arguments"]
    status = 0
    try:
        runpy.run_module(start["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        status = 1
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _end_with(status: int) -> None:
    """End this process as its worker has ended, so that the parent sees the worker's status."""
    if status > 0:
        os._exit(status)
    with contextlib.suppress(OSError):  # SIGKILL has no handler
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)


if __name__ == "__main__":
    main()
