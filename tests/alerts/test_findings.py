"""What an analysis keeps: going on from it says what a new one says, and no damage to it shows."""

import contextlib
import datetime
import itertools
import math
import shutil
import sqlite3
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from history import DAY_MS, START_MS, Here, commits_of, write_foreign, write_history

from lockstep.alerts.analysis.analyse import analyse_results, analyse_store
from lockstep.alerts.analysis.analysis_file import AnalysisFile, _packed
from lockstep.alerts.analysis.followed_series import followed
from lockstep.alerts.analysis.latest_findings import Findings, MachineFindings
from lockstep.alerts.analysis.machine_results import read_machine
from lockstep.alerts.cause.commit_ranges import Ranges
from lockstep.detect import analyse
from lockstep.history.cache_folder import DamagedCache, moved_aside
from lockstep.history.store import Store, StoreError
from lockstep.suite.thresholds import Threshold, Thresholds

LENGTH, AT = 30, 14
NOW = datetime.datetime.fromtimestamp((START_MS + LENGTH * DAY_MS) / 1000, datetime.UTC)

PLANTED = {
    "slowdown": lambda n: Here(slower=1.05 if n >= AT else 1.0),
    "fixed": lambda n: Here(slower=1.05 if AT <= n < AT + 8 else 1.0),
    "machine": lambda n: Here(everything=1.08, host={"gpu_uuid": "GPU-2"}) if n >= AT else Here(),
    "new ruler after": lambda n: Here(slower=1.05 if n >= AT else 1.0, version="ruler1" if n < AT + 8 else "ruler2"),
    "changed code": lambda n: Here(slower=1.02, code="bb") if n >= AT else Here(code="aa"),
}


#: One machine of ours and one of another project, for tests that many machines would only make slower.
TWO = ("slowdown", "foreign")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A repository, and a tree with a machine for each planted event and one of another project."""
    root = tmp_path_factory.mktemp("whole")
    commits = commits_of(root / "repo", LENGTH, touch=lambda n: n % 4 == 0)
    for machine, plan in PLANTED.items():
        write_history(root / "results", machine, commits, plan)
    write_history(root / "results", "seldom", commits, PLANTED["slowdown"], first=1, every=2)
    write_foreign(root / "results", "foreign", commits, lambda n: 1.1e-3 if n >= AT else 1e-3)
    write_foreign(root / "results", "failing", commits, lambda n: math.nan if n in (18, 23) or n >= 27 else 1e-3)
    return root, commits


class Growing:
    """The tree as it grows, and its store."""

    def __init__(self, whole, folder):
        self.source, self.commits = whole
        self.repo = self.source / "repo"
        self.root = folder / "results"
        self.store = Store.open(self.root, self.repo, folder / "cache", patience=0.0)
        self.kept = AnalysisFile(self.store.cache)

    def add(self, commits, machines=("*",)):
        results = self.source / "results"
        named = {"machine.json", *(one[:8] for one in commits)}
        paths = [path for machine in machines for path in results.glob(f"{machine}/*.json")]
        for path in (results / "benchmarks.json", *paths):
            if path.parent == results or path.name[:8] in named or path.name in named:
                to = self.root / path.relative_to(results)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, to)

    def looked(self, kept):
        return analyse_results(self.store.current(), Thresholds(), Ranges(self.repo, ("kernels",)), NOW, kept)

    def says_the_same(self):
        with tempfile.TemporaryDirectory() as nothing:
            now, anew = self.looked(self.kept), self.looked(AnalysisFile(Path(nothing)))
        assert now.alerts == anew.alerts
        assert [as_text(one) for one in now.changes] == [as_text(one) for one in anew.changes]
        assert now.series == anew.series
        return now


def as_text(found):
    """A change without what no two ways of adding agree on, the last digits of a number."""
    numbers = {name: round(getattr(found, name), 9) for name in ("size", "low", "high", "confidence", "left")}
    return repr(replace(found, **numbers))


@pytest.fixture
def growing(whole, tmp_path):
    return Growing(whole, tmp_path)


def test_commit_after_commit_finds_the_same_as_all_at_once(growing):
    before = 0
    for upto in (12, 17, 18, 24, LENGTH):
        growing.add(growing.commits[before:upto])
        before = upto
        found = growing.says_the_same() if upto in (18, LENGTH) else growing.looked(growing.kept)
    assert {one.series.machine for one in found.changes} >= {"slowdown", "fixed", "foreign"}
    assert ("failing", "vanished") in {(one.machine, one.topic) for one in found.alerts}


@pytest.mark.parametrize("rows", [0, 1, 8])
def test_killed_within_a_transaction_it_finds_the_same(growing, monkeypatch, rows):
    growing.add(growing.commits[:20], TWO)
    growing.looked(growing.kept)
    for commit in growing.commits[20:22]:
        growing.add([commit], TWO)
        written = itertools.count()

        def pack(content, written=written):
            if next(written) == rows:
                raise KeyboardInterrupt
            return _packed(content)

        with monkeypatch.context() as killed:
            killed.setattr("lockstep.alerts.analysis.analysis_file._packed", pack)
            with pytest.raises(KeyboardInterrupt):
                growing.looked(growing.kept)
    growing.says_the_same()


def test_commits_measured_later_in_between_give_the_same_findings(growing):
    growing.add(growing.commits[::2])
    growing.looked(growing.kept)
    growing.add(growing.commits[1 : AT + 2 : 2])
    growing.says_the_same()
    (growing.root / "slowdown").rename(growing.root / "another")
    growing.says_the_same()


def test_unchanged_machines_are_not_read(growing, monkeypatch):
    growing.add(growing.commits[:-1], TWO)
    growing.looked(growing.kept)
    growing.add(growing.commits[-1:], TWO[:1])
    results, asked = growing.store.current(), []
    read = type(results).trends
    monkeypatch.setattr(type(results), "trends", lambda self, series: asked.append(set(series)) or read(self, series))
    growing.looked(growing.kept)
    assert asked == [set(results.series(TWO[0]))]
    growing.looked(growing.kept)
    assert len(asked) == 1


def flipped(content):
    """The content with flipped bits in the second half of each page but the first, which has the tables."""
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    return b"".join([pages[0], *(page[:2048] + bytes(255 - byte for byte in page[2048:]) for page in pages[1:])])


@pytest.mark.parametrize("damage", [lambda content: content[:4096], flipped])
def test_a_damaged_file_is_moved_aside_and_made_anew(growing, damage, caplog):
    for first, after in ((0, 19), (19, 20)):
        growing.add(growing.commits[first:after], TWO)
        analyse_store(growing.store, Thresholds(), growing.repo)
    results = growing.store.current()
    before = Findings(growing.store.cache, growing.repo).of_machine(results, "slowdown").changes
    assert before
    file = growing.kept.path
    for log in file.parent.glob(f"{file.name}-*"):
        log.unlink()
    file.write_bytes(damage(file.read_bytes()))
    anew = Findings(growing.store.cache, growing.repo)
    with contextlib.suppress(DamagedCache):
        found = anew.of_machine(results, "slowdown")
        assert found is None or found.changes is None
    results, _ = analyse_store(growing.store, Thresholds(), growing.repo)
    assert anew.of_machine(results, "slowdown").changes == before
    assert moved_aside(growing.store.cache)
    assert "is damaged" in caplog.text
    growing.kept = AnalysisFile(growing.store.cache)
    growing.says_the_same()


def test_a_file_whose_first_transaction_was_rolled_back_is_like_none(growing):
    growing.add(growing.commits[:20], TWO)
    results = growing.store.current()
    with contextlib.closing(sqlite3.connect(growing.kept.path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    assert growing.kept.path.stat().st_size
    assert Findings(growing.store.cache, growing.repo).of_machine(results, "slowdown") is None
    growing.says_the_same()
    assert not moved_aside(growing.store.cache)


def test_a_full_disk_leaves_the_findings_that_were_read(growing, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        growing.add(growing.commits[:20], TWO)
        growing.store = Store.open(growing.root, growing.repo, disk / "cache", patience=0.0)
        results, _ = analyse_store(growing.store, Thresholds(), growing.repo)
        findings = Findings(growing.store.cache, growing.repo)
        assert findings.of_machine(results, "slowdown").noise
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        shown = findings.of_machine(results, "slowdown")
        assert shown.changes
        assert shown.behaviour(shown.changes[0].series)
        analyse_store(growing.store, Thresholds(default=Threshold(min_effect=0.5)), growing.repo)
        with pytest.raises(StoreError, match="its disk is full"):
            analyse_store(growing.store, Thresholds(), growing.repo, ("kernels",))
        assert findings.of_machine(results, "slowdown") is shown
        (disk / "filler").unlink()
        analyse_store(growing.store, Thresholds(), growing.repo, ("kernels",))
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_readers_do_not_wait_for_a_writer(growing, monkeypatch):
    monkeypatch.setattr("lockstep.alerts.analysis.analysis_file._PATIENCE", 0.1)
    growing.add(growing.commits[:20], TWO)
    results, _ = analyse_store(growing.store, Thresholds(), growing.repo)
    findings = Findings(growing.store.cache, growing.repo)
    with AnalysisFile(growing.store.cache).writing() as connection:
        connection.execute("DELETE FROM analysis")
        rows = [("large", str(number), bytes(1 << 16)) for number in range(100)]
        connection.executemany("INSERT INTO analysis (machine, state, content) VALUES (?, ?, ?)", rows)
        assert findings.of_machine(results, "slowdown").changes
    assert findings.of_machine(results, "slowdown") is None


def test_pages_wait_for_an_analysis_of_these_results_and_judge_it_by_the_thresholds_of_now(growing, tmp_path):
    growing.add(growing.commits[:20], TWO)
    file = tmp_path / "thresholds.toml"
    findings = Findings(growing.store.cache, growing.repo, thresholds=file)
    results = growing.store.current()
    assert findings.of_machine(results, "slowdown") is None
    before = findings.version(results)
    analyse_store(growing.store, Thresholds(), growing.repo)
    assert findings.version(results) != before
    shown = findings.of_machine(results, "slowdown")
    [name] = {one.series for one in shown.changes if one.series.case == "M=1,K=64" and not one.suppressed}
    behaviour = shown.behaviour(name)
    assert behaviour.noise.scale == shown.noise[name]
    assert [level.stop for level in behaviour.levels] == [AT, 20]
    before = findings.version(results)
    file.write_text("[default]\nmin_effect = 0.5\n")
    assert findings.version(results) != before
    assert {one.suppressed for one in findings.of_machine(results, "slowdown").changes} == {"small"}
    growing.add(growing.commits[20:21], TWO)
    file.unlink()
    assert findings.of_machine(growing.store.current(), "slowdown") is None


def test_how_series_behave_is_read_from_the_file(growing):
    for first, after in ((0, 20), (20, 22), (22, 24)):
        growing.add(growing.commits[first:after])
        results, _ = analyse_store(growing.store, Thresholds(), growing.repo)
    findings, told = Findings(growing.store.cache, growing.repo), 0
    for machine in PLANTED:
        shown = findings.of_machine(results, machine)
        series = {one.name: one for one in followed(read_machine(results, machine))}
        for name, one in series.items():
            found, whole = shown.behaviour(name), analyse(one.values)
            assert found.changes == whole.changes
            assert shown.noise[name] == pytest.approx(found.noise.scale, rel=1e-12, nan_ok=True)
            assert found.noise.scale == pytest.approx(whole.noise.scale, rel=1e-9, nan_ok=True)
            told += len(whole.changes)
    assert told >= len(PLANTED)


def test_findings_that_are_replaced_or_deleted_leave_no_wrong_answer(growing):
    growing.add(growing.commits[:20], TWO)
    results, _ = analyse_store(growing.store, Thresholds(), growing.repo)
    findings = Findings(growing.store.cache, growing.repo)
    shown = findings.of_machine(results, "slowdown")
    with growing.kept.writing() as connection:
        connection.execute("DELETE FROM analysis")
    assert shown.changes, "a page that is being made goes on"
    with pytest.raises(StoreError, match="there are no findings"):
        MachineFindings(growing.kept, results, "slowdown", Thresholds())
    assert growing.kept.path.exists()
    analyse_store(growing.store, Thresholds(), growing.repo)
    assert findings.of_machine(results, "slowdown").changes
    growing.kept.path.unlink()
    assert findings.of_machine(results, "slowdown") is None
    analyse_store(growing.store, Thresholds(), growing.repo)
    assert findings.of_machine(results, "slowdown").changes


def test_several_at_once_leave_what_one_leaves(growing):
    growing.add(growing.commits[:20], TWO)
    stores = [Store.open(growing.root, growing.repo, growing.store.cache.parent, patience=0.0) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda store: analyse_store(store, Thresholds(), growing.repo)[1], stores))
    assert done[0].changes == done[1].changes == done[2].changes
    growing.says_the_same()
    findings = Findings(growing.store.cache, growing.repo)
    assert findings.of_machine(growing.store.current(), "slowdown").changes


def test_what_nobody_shows_any_more_is_deleted(growing, monkeypatch):
    growing.add(growing.commits[:20], TWO)
    analyse_store(growing.store, Thresholds(), growing.repo)
    growing.add(growing.commits[20:21], TWO)
    monkeypatch.setattr("lockstep.alerts.analysis.analysis_file._KEEP_S", -1.0)
    analyse_store(growing.store, Thresholds(), growing.repo)
    with growing.kept.reading() as connection:
        [counts] = connection.execute(
            "SELECT (SELECT count(*) FROM analysis), (SELECT count(DISTINCT analysis) FROM detector_state)"
        )
    assert counts == (len(growing.store.current().machines),) * 2


#: newton-physics/newton's setup.bench_sdf.FastBuildSdf.time_build_sdf (64) on one machine with Windows, in ms.
TWO_LEVELS = (
    *(146.5, 144.4, 144.0, 144.1, 147.5, 146.4, 146.9, 158.4, 159.4, 146.9, 159.2, 158.5, 158.7, 146.9, 148.0, 146.6),
    *(146.5, 159.3, 159.2, 158.8, 158.8, 158.8, 158.1, 158.3, 158.1),
)


#: newton-physics/newton's simulation.bench_cable.FastExampleCablePile.time_simulate on that machine, in ms.
DIP = (
    *(137.4, 137.8, 137.6, 137.5, 137.8, 138.3, 137.6, 138.2, 138.0, 138.3, 136.8, 138.2, 137.9, 137.5),
    *(127.1, 127.6, 127.0, 126.7, 137.8, 134.3, 134.6, 135.9, 137.5, 135.7),
)


@pytest.mark.parametrize(
    ("values", "flips"),
    [
        (TWO_LEVELS, True),
        (DIP, True),
        ((*DIP[:14], *DIP[14:18] * 2, *DIP[18:]), False),  # no dip: it was faster for eight points
        ((*(146.5, 144.4, 144.0, 144.1) * 3, *(158.4, 159.4, 159.2, 158.5) * 3), False),
        # django's form_validate, in µs: the commits of another branch are outliers, and the loss stays.
        (
            (*(0.12, 0.13, 0.12, 0.12) * 4, 12.4, 0.12, 0.1, 12.1, *(0.13, 0.12) * 3, *(19.4, 15.8, 15.6, 19.2) * 5),
            False,
        ),
        # A loss that was mended comes again.
        (
            (*(158.4, 159.4, 159.2, 158.5) * 3, *(146.5, 144.4, 144.0, 144.1) * 3, *(158.4, 159.4, 159.2, 158.5) * 3),
            False,
        ),
    ],
)
def test_a_series_moves_between_levels_if_its_points_go_to_and_fro(tmp_path, values, flips):
    assert {change.flips for change in losses(tmp_path, values)} == {flips}


def losses(tmp_path, values, **written):
    """Return the losses in a series of these times in ms."""
    commits = commits_of(tmp_path / "repo", len(values), touch=lambda n: True)
    write_foreign(tmp_path / "results", "machine", commits, lambda n: values[n] / 1e3, **written)
    store = Store.open(tmp_path / "results", tmp_path / "repo", tmp_path / "cache")
    _, found = analyse_store(store, Thresholds(), tmp_path / "repo")
    return [change for change in found.changes if change.sense == "worse"]


def test_a_dip_does_not_mend_the_loss_before_it(tmp_path):
    low, high = (129.9, 129.1, 129.3, 130.6), (158.4, 159.4, 159.2, 158.5)
    found = losses(tmp_path, (*low * 4, *high * 3, *low, *high * 2))
    assert [change.flips for change in found] == [False, True] * 2, "write_foreign writes two series"
    assert [change.left for change in found] == pytest.approx([change.size for change in found], abs=0.02)


@pytest.mark.parametrize(("level", "points", "few"), [(110, 4, True), (110, 7, False), (150, 4, False)])
def test_few_points_that_are_not_clear_of_those_before_are_few(tmp_path, level, points, few):
    found = losses(
        tmp_path, (*(100, 103, 101.5, 98, 99.5) * 4, *(level + 2, level - 3, level, level + 1) * 2)[: 20 + points]
    )
    assert {change.few for change in found} == {few}


def test_a_toolchain_that_changed_anywhere_in_the_range_is_the_cause(tmp_path):
    values = (*(100, 101, 99.5, 100.5) * 5, 115, *(150, 151, 149.5, 150.5) * 5)
    found = losses(tmp_path, values, requirements=lambda n: {"numpy": "2" if n > 20 else "1"})
    assert {(change.first, change.last, change.cause.kind) for change in found} == {(20, 21, "toolchain")}
