"""The file of a machine's findings: a change takes memory only while a page shows it."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from lockstep.alerts.analysis.findings_files import Finding, MachineFindings, write_changes
from lockstep.record.series_name import SeriesName

SERIES, CHANGES = 400, 20


def changes():
    """Return 20 changes of each of 400 series; every fourth change is suppressed."""
    for number in range(SERIES):
        name = SeriesName("h200", "linear", "linear", f"v{number}", "M=1", "cold", "speedup")
        for last in reversed(range(CHANGES)):
            commits = [f"{last + place:040x}" for place in range(3)]
            kept = "small" if last % 4 == 0 else ""
            yield Finding(name, 0.1 * last, 0.05, 0.15, last, *commits, 1, "", "code", f"sentence\n{last}", kept)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file of these changes; the machine has no detector."""
    empty = SimpleNamespace(names=[], noise=np.empty(0))
    monkeypatch.setattr("lockstep.alerts.analysis.findings_files.StoredDetector", lambda detector, state: empty)
    write_changes(tmp_path / "changes", changes())
    return tmp_path / "changes"


def test_a_series_gives_its_reported_changes_oldest_first(file):
    found = MachineFindings(file, file, "state")
    assert len(found.changed) == SERIES
    written = sorted(changes(), key=lambda change: change.last)
    for name in list(found.changed)[::97]:
        own = [change for change in written if change.series == name and not change.suppressed]
        assert found.reported(name) == own
        assert found.reported(name, after=11) == [change for change in own if change.last > 11]
    assert sorted(found.changes, key=str) == sorted(written, key=str)


def test_changes_that_no_page_shows_take_little_memory(file):
    tracemalloc.start()
    found = MachineFindings(file, file, "state")
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(found.changes) == SERIES * CHANGES
    # A name, and an array of indices, for each series; 100 bytes a change. A change as Python objects takes 900.
    assert taken < 100 * SERIES * CHANGES


@pytest.mark.parametrize("cut", [1, 10, 5000, 200_000])
def test_a_file_that_ends_early_is_damaged(file, cut):
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(ValueError, match="damaged"):
        MachineFindings(file, file, "state")
