"""Records as ``lockstep measure`` prints them."""

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


def test_a_variant_that_is_not_deterministic_is_named():
    records = [Record("a", str(same), "c", "warm", "ok", "1", deterministic=same) for same in (None, True, False)]
    assert list(reasons(records)) == ["not deterministic: two calls on the same inputs differ in bits (False; c warm)"]
