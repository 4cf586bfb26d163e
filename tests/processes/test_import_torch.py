"""What processes that start often import, and how."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

LOADS = """
import gc

from lockstep.processes.import_torch import load_torch

born_before = [object()], []
load_torch()
print(gc.isenabled(), gc.get_freeze_count() > 100_000, any(one is born_before for one in gc.get_objects()))
gc.disable()
load_torch()
print(gc.isenabled())
"""


def run(program):
    """Run it in a process of its own: what it changes there, no other test sees."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def test_what_is_loaded_is_left_out_and_the_collector_goes_on_if_it_did():
    assert run(LOADS) == "True True False\nFalse\n"


def test_workers_and_suites_take_no_part_of_asv():
    """It takes longer to import than all else that a worker needs before torch."""
    program = """
import sys
from pathlib import Path
import lockstep.asv.worker, lockstep.gate.measuring.worker, lockstep.machine_code.worker
from lockstep.suite.discovery import load_suites
assert load_suites(Path("benchmarks"))
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"asv", "asv_runner", "torch", "numpy"}))
"""
    assert run(program) == "\n"


def test_verbs_that_measure_start_without_numpy():
    """Its import takes a quarter of their start; what uses it runs in their workers."""
    program = """
import sys
import lockstep.commands.gate, lockstep.commands.measure, lockstep.commands.noise, lockstep.commands.run
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "numpy", "scipy"}))
"""
    assert run(program) == "\n"
