"""Importing torch leaves the garbage collector as it was."""

import gc

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
