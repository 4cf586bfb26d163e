"""The provenance file: what is written is read back, and what is broken is refused by name."""

import io
import json
import math
import os
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from lockstep.record.file import RecordError, read_records, write_records
from lockstep.record.model import (
    SCHEMA_VERSION,
    Accuracy,
    Clocks,
    Code,
    CostEstimate,
    Estimate,
    Kernel,
    Provenance,
    Record,
)
from lockstep.record.printed_table import records_table

# The file keeps seven digits.
numbers = (
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: float(f"{value:.7g}")).filter(math.isfinite)
)
texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=20)
# An interval from one epoch has no bounds.
lows, highs = numbers | st.just(-math.inf), numbers | st.just(math.inf)
estimates = st.none() | st.builds(Estimate, numbers, lows, highs)
some = st.none() | numbers
samples = st.lists(numbers, max_size=20).map(tuple)
counts = st.integers(0, 1 << 20)
kernels = st.builds(
    Kernel, names, texts, st.none() | counts, st.none() | counts, st.none() | counts, st.dictionaries(names, counts)
)
clocks = st.builds(Clocks, some, some, some, some, st.lists(texts, max_size=3).map(tuple), some)
given_fields = {
    "suite": names,
    "variant": names,
    "case": names,
    "l2": names,
    "state": st.sampled_from(["ok", "na", "failed"]),
    "version": names,
    "reason": texts,
    "rule": texts,
    "latency": estimates,
    "speedup": estimates,
    "flops": numbers,
    "bytes": numbers,
    "floor_s": some,
    "floor_source": texts,
    "mde": some,
    "rounds": st.integers(0, 1000),
    "epochs": st.integers(0, 1000),
    "voided": st.integers(0, 1000),
    "check_error": some,
    "accuracy": st.none() | st.builds(Accuracy, *[numbers] * 7, counts),
    "deterministic": st.none() | st.booleans(),
    "converged": st.booleans(),
    "baseline": texts,
    "note": texts,
    "clocks": clocks,
    "started_at": texts,
    "wall_s": numbers,
    "latency_samples": samples,
    "speedup_samples": samples,
    "costs": st.dictionaries(names, st.builds(CostEstimate, numbers, lows, highs, counts), max_size=3),
    "code": st.none() | st.builds(Code, st.lists(kernels, max_size=2).map(tuple), texts),
    "chosen": st.dictionaries(names, texts, max_size=3),
    "gpu": texts,
    "sources": texts,
    "work": texts,
    "same_work_as": texts,
}
records = st.builds(Record, **given_fields)
provenances = st.builds(
    Provenance,
    commit=texts,
    environment=texts,
    machine=texts,
    recorded_at=texts,
    harness=texts,
    clock_state=texts,
    host=st.dictionaries(texts, texts, max_size=4),
    controls=st.dictionaries(texts, st.dictionaries(texts, numbers | texts, max_size=4), max_size=3),
    protocol=st.integers(1, 9),
)

PROVENANCE = Provenance("c" * 40, "lockstep", "m", "2026-01-01T00:00:00+00:00", "", "cpu", {"device": "cpu"}, {}, 1)
RECORD = Record("linear", "torch", "M=1", "warm", "ok", "v1", latency=Estimate(1e-6, 9e-7, 1.1e-6))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "machine" / "abc-lockstep.provenance.jsonl"


def test_every_field_is_tried():
    assert set(given_fields) == {one.name for one in fields(Record)}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(provenance=provenances, rows=st.lists(records, max_size=4))
def test_what_is_written_is_read_back(path, provenance, rows):
    write_records(path, provenance, rows)
    # Those of one case stand together, where the first of them stood.
    places = list(dict.fromkeys((one.suite, one.case, one.l2, one.state) for one in rows))
    gathered = sorted(rows, key=lambda one: places.index((one.suite, one.case, one.l2, one.state)))
    assert read_records(path) == (provenance, gathered)


KERNEL = Kernel("matmul", "ab12", 168, 0, 1024, {"HGMMA": 64})


def test_what_records_share_is_written_once_and_read_back(path):
    alone = replace(RECORD, case="M=2", clocks=Clocks(1500.0, 1490.0, 50.0), code=Code((KERNEL,)))
    arms = [
        replace(alone, case="M=1", variant=variant, clocks=Clocks(mhz, mhz, 50.0, 300.0), started_at="now", mde=mde)
        for variant, mhz, mde in [("torch", 1400.0, None), ("triton", 1410.0, 0.01), ("best", 1410.0, 0.02)]
    ]
    absent = replace(RECORD, case="M=1", variant="tgv", state="na", latency=None, reason="needs Blackwell")
    rows = [*arms, absent, alone]
    write_records(path, PROVENANCE, [arms[0], absent, *arms[1:], alone])
    assert read_records(path) == (replace(PROVENANCE, schema=SCHEMA_VERSION), rows)
    text = path.read_text()
    assert (text.count('"HGMMA"'), text.count('"now"'), text.count("300.0")) == (1, 1, 1)
    # What the arms share ends with them.
    assert text.count('{"common":{}}') == 1


def test_a_file_of_schema_1_reads_alike(path):
    """There every line was a record with all that differs from the default, kernels in place."""
    write_records(path, PROVENANCE, [replace(RECORD, code=Code((KERNEL,), "cd34"))])
    first, _, record = (json.loads(text) for text in path.read_text().splitlines())
    assert record["code"]["kernels"] != [asdict(KERNEL)]
    record["code"]["kernels"] = [asdict(KERNEL)]
    path.write_text(json.dumps(first | {"schema": 1}) + "\n" + json.dumps(record) + "\n")
    provenance, [read] = read_records(path)
    assert provenance.schema == 1
    assert read.code == Code((KERNEL,), "cd34")


def test_a_kernel_that_no_line_tells_is_refused(path):
    write_records(path, PROVENANCE, [replace(RECORD, code=Code((KERNEL,)))])
    first, _, record = path.read_text().splitlines()
    path.write_text(f"{first}\n{record}\n")
    with pytest.raises(RecordError, match=r"line 2: code\.kernels\.0: Input should be a dictionary"):
        read_records(path)


def test_a_record_of_defaults_takes_little_room(path):
    write_records(path, PROVENANCE, [replace(RECORD, state="na", latency=None, reason="needs Blackwell")])
    [_, line] = path.read_text().splitlines()
    assert set(json.loads(line)) == {"suite", "variant", "case", "l2", "state", "version", "reason"}


def test_what_json_has_not_becomes_null(path):
    controls = {"copy": {"seconds": math.nan, "rate": math.inf}}
    write_records(path, replace(PROVENANCE, controls=controls), [replace(RECORD, mde=math.inf, floor_s=math.nan)])
    assert "NaN" not in path.read_text()
    assert "Infinity" not in path.read_text()
    provenance, [record] = read_records(path)
    assert (record.mde, record.floor_s) == (None, None)
    assert provenance.controls["copy"]["seconds"] is None


def test_an_error_that_is_no_number_is_read_as_it_was(path):
    write_records(path, PROVENANCE, [replace(RECORD, accuracy=Accuracy(0.0, *[math.nan] * 6))])
    accuracy = read_records(path)[1][0].accuracy
    assert accuracy.norm == 0
    assert math.isnan(accuracy.centred)


def test_fields_of_a_later_version_are_ignored(path):
    write_records(path, PROVENANCE, [RECORD])
    lines = [json.loads(line) | {"invented": 1} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_records(path) == (PROVENANCE, [RECORD])


def test_a_fact_of_the_host_that_is_a_number_is_read_as_its_text(path):
    spoilt(path, 0, host={"cublas": 130100})
    assert read_records(path)[0].host == {"cublas": "130100"}


def spoilt(path, line, **changes):
    """Replace fields in one line of a good file; None removes a field."""
    write_records(path, PROVENANCE, [RECORD])
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    rows[line] = {name: value for name, value in {**rows[line], **changes}.items() if value is not None}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("schema", [SCHEMA_VERSION + 1, "1", None])
def test_another_schema_is_refused_by_number(path, schema):
    spoilt(path, 0, schema=schema)
    with pytest.raises(
        RecordError, match=rf"has schema {schema!r}; this version of lockstep reads up to {SCHEMA_VERSION}"
    ):
        read_records(path)


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        (0, {"commit": None}),
        (1, {"suite": None}),
        (1, {"latency": "fast"}),
        (1, {"latency": {"value": 1.0}}),
        (1, {"latency_samples": [None]}),
        (1, {"latency_samples": 5}),
        (1, {"clocks": [1]}),
        (1, {"code": "fast"}),
        (1, {"code": {"kernels": [{"registers": 8}]}}),
        (1, {"state": 1}),
        (1, {"variant": ["torch"]}),
        (0, {"recorded_at": 5}),
        (0, {"host": "here"}),
    ],
)
def test_wrong_types_are_refused(path, line, changes):
    spoilt(path, line, **changes)
    with pytest.raises(RecordError, match=f"{path.name}, line {line + 1}: {next(iter(changes))}"):
        read_records(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "line 1: EOF while parsing a value at line 1 column 0; delete the file and measure again"),
        (b"\xff\xfe\x00", "line 1: expected value"),
        (b'{"\xff": 1}', "line 1: invalid unicode code point"),
        (b"[1]\n", r"line 1: expected an object, got \[1\]"),
        (b"\x00" * 100, "line 1: expected value"),
        (b'{"a":' * 100_000, "line 1: recursion limit exceeded"),
    ],
)
def test_what_is_no_provenance_file_is_refused(path, content, complaint):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(RecordError, match=f"{path.name}.*{complaint}"):
        read_records(path)


def test_a_file_cut_anywhere_within_a_line_is_refused(path):
    write_records(path, PROVENANCE, [RECORD, RECORD])
    whole = path.read_bytes()
    ends = {index for index in range(len(whole)) if whole[index : index + 1] == b"\n"}
    for cut in range(1, len(whole) - 1, 7):
        if cut in ends or cut - 1 in ends:
            continue
        path.write_bytes(whole[:cut])
        with pytest.raises(RecordError, match=r"line \d: (EOF while parsing|expected an object)"):
            read_records(path)


def test_a_missing_file_is_not_a_broken_one(path):
    with pytest.raises(FileNotFoundError):
        read_records(path)


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_crash_while_writing_leaves_the_old_file_alone(path, monkeypatch, step):
    write_records(path, PROVENANCE, [RECORD])
    before = path.read_bytes()

    def crash(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash) if step == "fsync" else patch.setattr(type(path), step, crash)
        with pytest.raises(KeyboardInterrupt):
            write_records(path, PROVENANCE, [RECORD, RECORD])
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_crash_between_records_leaves_the_old_file_alone(path):
    write_records(path, PROVENANCE, [RECORD])

    def broken():
        yield RECORD
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_records(path, PROVENANCE, broken())
    assert read_records(path) == (PROVENANCE, [RECORD])


def test_others_may_read_it(path):
    write_records(path, PROVENANCE, [RECORD])
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_slow_rate_keeps_its_digits_and_what_is_not_known_is_called_so():
    times, wide = Estimate(1.0, 0.9, 1.1), Estimate(1.0, 0.0, 200.0)
    slow = replace(RECORD, state="ok", latency=times, flops=4.2e7, bytes=1.2e10, speedup=wide, mde=math.inf)
    shown = io.StringIO()
    Console(file=shown, width=200).print(records_table([slow]))
    assert "0.042" in shown.getvalue()
    assert "12" in shown.getvalue()
    assert shown.getvalue().count("unknown") == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": "skipped"}, "'skipped' is none of ok, na, failed"),
        ({"state": "ok"}, "needs a latency"),
        ({"state": "ok", "latency": Estimate(1, 1, 1), "reason": "slow"}, "has no reason"),
        ({"state": "failed"}, "needs a reason"),
        ({"state": "na", "reason": "not here", "latency": Estimate(1, 1, 1)}, r"has no \['latency'\]"),
        ({"state": "failed", "reason": "wrong", "epochs": 3}, r"has no \['epochs'\]"),
        ({"state": "na", "reason": "not here", "rule": "hung"}, "the rule hung"),
        (
            {"state": "ok", "latency": Estimate(1, 1, 1), "speedup": Estimate(1, 1, 1), "rule": "unconfirmed-time"},
            "the rule unconfirmed-time",
        ),
    ],
)
def test_the_state_decides_which_fields_a_record_has(changes, why):
    record = Record("linear", "best", "M=8", "cold", "ok", "1")
    with pytest.raises(ValueError, match=why):
        replace(record, **changes).validated()
    for right in (
        {"latency": Estimate(1, 1, 1)},
        {"state": "failed", "reason": "wrong", "rule": "wrong-result"},
        {"state": "na", "reason": "not here"},
        {"latency": Estimate(1, 1, 1), "rule": "unconfirmed-time"},
    ):
        assert replace(record, **right).validated() == replace(record, **right)
