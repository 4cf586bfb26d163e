"""The command of an alert measures the ends of its range, or what its own machine measured."""

from dataclasses import replace

import pytest
from alerting import COMMITS, alerts, series, step

from lockstep.alerts.reproduce import reproduce


def test_the_ends_of_the_range_are_measured_at_the_worst_case():
    [alert] = alerts(step(), step(by=0.2, name=series(case="M=16,K=64")))
    ends = f"--base {COMMITS[9][:12]} --head {COMMITS[10][:12]}"
    case = "--case M=16,K=64 --variant triton --l2 cold"
    assert reproduce(alert) == f"lockstep gate {ends} --family linear {case}"


@pytest.mark.parametrize("changes", [{"members": ()}, {"before": ""}])
def test_without_a_change_or_its_beginning_there_is_no_command(changes):
    [alert] = alerts(step())
    assert reproduce(replace(alert, **changes)) == ""
