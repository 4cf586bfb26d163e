"""What processes that start often import, and how."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.loading import load_torch


@pytest.mark.parametrize("collecting", [True, False])
def test_what_is_loaded_is_left_out_and_the_collector_goes_on(collecting):
    before = gc.isenabled(), gc.get_freeze_count()
    try:
        (gc.enable if collecting else gc.disable)()
        born_before = [object() for _ in range(1000)], []
        load_torch()
        assert gc.isenabled() == collecting
        assert gc.get_freeze_count() > before[1]
        assert not any(one is born_before for one in gc.get_objects())
    finally:
        (gc.enable if before[0] else gc.disable)()


def test_workers_and_suites_take_no_part_of_asv():
    """It takes longer to import than all else that a worker needs before torch."""
    program = """
import sys
from pathlib import Path
import lockstep.asv.worker, lockstep.gate.worker, lockstep.machine_code.worker
from lockstep.suites import load_suites
assert load_suites(Path("benchmarks"))
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"asv", "asv_runner", "torch", "numpy"}))
"""
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
