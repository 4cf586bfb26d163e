"""Records as ``lockstep measure`` prints them."""

from dataclasses import replace

import pytest
from rich.console import Console

from lockstep.record.model import Estimate, Record
from lockstep.record.printed_table import reasons, records_table


def test_the_table_shows_the_error_of_the_check():
    measured = Record("a", "b", "c", "warm", "ok", "1", latency=Estimate(1e-6, 1e-6, 1e-6), check_error=1.65e-3)
    console = Console(width=200)
    with console.capture() as capture:
        console.print(records_table([measured, Record("a", "b", "d", "warm", "failed", "1")]))
    heading, _, row, *_ = capture.get().splitlines()
    assert (heading.split()[-1], row.split()[-1]) == ("error", "1.6e-03")


@pytest.mark.parametrize(("name", "case"), [("a long name", "M=1024"), ("c", "-")])
def test_the_parts_of_a_table_have_the_same_columns(name, case):
    slow = Record("a", name, "-", "warm", "ok", "1", latency=Estimate(1e-1, 1e-6, 1e-6), check_error=1e-3)
    fast = replace(slow, variant="b", case=case, latency=Estimate(1e-6, 1e-6, 1e-6))
    names, cases = (slow.variant, fast.variant), (slow.case, fast.case)
    console = Console(width=200)
    with console.capture() as capture:
        for number, record in enumerate((slow, fast)):
            console.print(records_table([record], "a", names=names, cases=cases, head=not number))
    lines = capture.get().splitlines()
    assert len(lines) == 5
    assert [line.index("warm") for line in lines[3:]] == [lines[1].index("L2")] * 2
    assert len({len(line) for line in lines[1:]}) == 1


def test_a_variant_that_is_not_deterministic_is_named():
    records = [Record("a", str(same), "c", "warm", "ok", "1", deterministic=same) for same in (None, True, False)]
    assert list(reasons(records)) == ["not deterministic: two calls on the same inputs differ in bits (False; c warm)"]
