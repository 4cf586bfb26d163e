"""The clocks that a machine's series are told at: the first ones stay, in a file that a person can read."""

import json

import pytest

from lockstep.record.file import RecordError
from lockstep.record.model import TWIN, Clocks, Record
from lockstep.timing.clocks.reference_clocks import NAME, ReferenceClocks


def record(variant, mhz, case="M=1"):
    return Record("s", variant, case, "cold", "ok", "v1", clocks=Clocks(told_mhz=mhz))


def test_the_first_clock_stays(tmp_path):
    path = tmp_path / "m" / NAME
    ReferenceClocks(path).learn([record("a", 1650.123), record("b", 1700.0, "M=2")])
    ReferenceClocks(path).learn([record("a", 1500.0), record("c", 1800.0)])
    clocks = ReferenceClocks(path)
    assert clocks.of("s", "M=1", "cold") == {"a": 1650.12, "c": 1800.0}
    assert clocks.of("s", "M=2", "cold") == {"b": 1700.0}
    assert clocks.of("s", "M=1", "warm") == {}
    first = path.read_text().splitlines()[0]
    assert json.loads(first) == {"suite": "s", "case": "M=1", "l2": "cold", "variant": "a", "mhz": 1650.12}


def test_twins_and_unknown_clocks_are_left_out(tmp_path):
    path = tmp_path / NAME
    ReferenceClocks(path).learn([record("a" + TWIN, 1650.0), record("b", None)])
    assert not path.exists()


def test_without_a_file_they_are_remembered():
    clocks = ReferenceClocks()
    clocks.learn([record("a", 1650.0)])
    assert clocks.of("s", "M=1", "cold") == {"a": 1650.0}


@pytest.mark.parametrize(
    "line",
    [
        "{half a li",
        "7",
        '{"suite": "s", "case": "M=1", "l2": "cold", "variant": "a"}',
        '{"suite": "s", "case": "M=1", "l2": "cold", "variant": 1, "mhz": 1500}',
        '{"suite": "s", "case": "M=1", "l2": "cold", "variant": "a", "mhz": 0}',
        '{"suite": "s", "case": "M=1", "l2": "cold", "variant": "a", "mhz": NaN}',
        '{"suite": "s", "case": "M=1", "l2": "cold", "variant": "a", "mhz": "fast"}',
    ],
)
def test_a_broken_line_is_named_and_nothing_is_overwritten(tmp_path, line):
    path = tmp_path / NAME
    ReferenceClocks(path).learn([record("a", 1650.0)])
    text = path.read_text() + line + "\n"
    path.write_text(text)
    with pytest.raises(RecordError, match=rf"{NAME}, line 2: does not hold a series and its clock in MHz"):
        ReferenceClocks(path)
    assert path.read_text() == text
