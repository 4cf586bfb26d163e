"""Time by stage: every moment counts once."""

import pytest

from lockstep.timing.stage_times import Stages


def test_a_stage_within_another_counts_as_itself_alone():
    moments = iter([0, 10, 13, 20, 50, 51, 60])
    stages = Stages(now=lambda: float(next(moments)))
    with stages.stage("time"), stages.stage("controls"):
        pass
    with stages.stage("time"):
        pass
    assert stages.take() == {"time": 10.0 + 7.0 + 1.0, "controls": 3.0}


def test_a_stage_that_raises_is_counted_and_left():
    moments = iter([0, 5, 7, 8])
    stages = Stages(now=lambda: float(next(moments)))
    with pytest.raises(KeyError), stages.stage("check"):
        raise KeyError
    with stages.stage("draw"):
        pass
    assert stages.seconds == {"check": 5.0, "draw": 1.0}


def test_taking_within_a_stage_takes_what_is_over():
    moments = iter([0, 5, 7, 8])
    stages = Stages(now=lambda: float(next(moments)))
    with stages.stage("check"):
        assert stages.take() == {"check": 5.0}
    assert stages.take() == {"check": 2.0}
