"""What must be settled before anything is imported.

Tests run Triton kernels through its interpreter. Their products are small, and threads that wait for more of them take
longer than the products: with two threads test_grouped.py took 24 s of CPU, with one 10.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
from pathlib import Path

if not os.environ.get("LOCKSTEP_TEST_GPU"):
    os.environ["TRITON_INTERPRET"] = "1"
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import pytest
from browser import chromium, visit, window
from nvml import build

__all__ = ["chromium", "visit", "window"]


_ROOT = Path(__file__).parents[1]
_SUITES = ("benchmarks", "lockstep_suites", "suites")
_THEIRS = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_", "TRITON_CACHE_DIR", "TRITON_PTXAS_PATH")


@pytest.fixture(autouse=True)
def _untouched():
    """Fail a test that leaves the process other than it found it: the tests after it would depend on it.

    Taken back are suites of a test's project, which hide others of their name, the folders that imported suites leave
    on the path, and what a verb leaves in asv's console: progress, and a handler of the root logger, which would print
    each line once more.
    """
    before, path, handlers = _process(), list(sys.path), list(logging.getLogger().handlers)
    yield
    sys.path[:] = path
    logging.getLogger().handlers[:] = handlers
    if console := sys.modules.get("asv.console"):
        vars(console.log).update(vars(console.Log()))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _SUITES and not Path(module.__file__ or "").is_relative_to(_ROOT):
            del sys.modules[name]
    assert _process() == before


def _process():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # pytest names the running test there, and torch's compiler sets variables of its own when it is first imported.
    # The first test on a GPU pins Triton's assembler and cache for the whole process.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_THEIRS)}
    return {
        "environment": environment,
        "folder": Path.cwd(),
        "signal handlers": handlers,
        "collects garbage": gc.isenabled(),
        "writes bytecode": not sys.dont_write_bytecode,
    }


def pytest_configure() -> None:
    """Keep bytecode, let signals reach what tests start, and have hypothesis draw the same examples every time."""
    # A shell starts a background job with SIGINT ignored, nohup with SIGHUP. A child inherits that, but no handler.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    # The environment may ask for no bytecode, but some three hundred processes import the same modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    gc.disable()  # until all is imported
    os.fsync = lambda file: None  # no file of a test need outlast a loss of power; each write waited 14 ms for the disk
    with contextlib.suppress(ImportError):  # a GPU host that runs the kernels' tests may lack it
        from hypothesis import HealthCheck, settings

        slow = [HealthCheck.too_slow]
        settings.register_profile("lockstep", derandomize=True, deadline=None, suppress_health_check=slow)
        settings.load_profile("lockstep")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that say little more than others and take much longer, unless all are asked for."""
    if not os.environ.get("LOCKSTEP_TEST_ALL"):
        skip = pytest.mark.skip(reason="takes long; make test-all runs it")
        for item in items:
            if item.get_closest_marker("thorough"):
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Exempt what the tests import from garbage collection: torch alone makes hundreds of thousands of objects."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in NVML library, built once a process."""
    return build(tmp_path_factory.mktemp("nvml"))
