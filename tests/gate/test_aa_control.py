"""What counts as a change after unchanged code was compared with itself."""

from __future__ import annotations

import math

from lockstep.gate.aa_control import AAControl
from lockstep.gate.model import SeriesKey, Verdict
from lockstep.record.model import Estimate

FIRST, SECOND, OTHER = (SeriesKey("s", "v", case, "cold") for case in ("M=1", "M=2", "M=3"))
VERDICTS = (
    Verdict(FIRST, "same", change=Estimate(0.0, -0.004, 0.004)),
    Verdict(SECOND, "slower", change=Estimate(0.03, 0.02, 0.04)),
)


def test_on_a_gpu_the_largest_difference_that_was_found_holds_for_every_case():
    found = AAControl(VERDICTS)
    assert [found.least(key, 0.01) for key in (FIRST, SECOND, OTHER)] == [0.04] * 3
    assert found.least(OTHER, 0.05) == 0.05
    assert AAControl(VERDICTS[:1]).least(OTHER, 0.001) == 0.001  # what is the same says nothing


def test_on_a_cpu_each_case_has_its_own_and_others_the_largest():
    found = AAControl(VERDICTS, on_cpu=True)
    assert [found.least(key, 0.001) for key in (FIRST, SECOND, OTHER)] == [0.004, 0.04, 0.04]


def test_the_note_names_the_case_that_differs_more_than_what_should_count():
    assert AAControl(VERDICTS).note(lambda key: 0.01) == "unchanged code may differ by 4 % here (s v M=2 cold)"
    assert AAControl(VERDICTS).note(lambda key: 0.04) == AAControl().note(lambda key: 0.0) == ""
    endless = AAControl((Verdict(FIRST, "slower", change=Estimate(0.03, -math.inf, math.inf)),))
    assert endless.note(lambda key: 0.01) == "unchanged code may differ by 100 % or more here (s v M=1 cold)"
    # Two epochs that differ widely: their interval on a logarithmic scale has an end that tells nothing.
    wide = AAControl((Verdict(FIRST, "slower", change=Estimate(0.9, -0.9, 1e87)),))
    assert wide.note(lambda key: 0.01) == "unchanged code may differ by 100 % or more here (s v M=1 cold)"
    assert wide.least(FIRST, 0.01) == 1.0
