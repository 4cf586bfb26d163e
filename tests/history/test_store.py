"""The store keeps in step with the files, whoever else uses it, and whenever a process is killed."""

import fcntl
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from bench.make_tree import write_many
from trees import COMMIT, DATE, MACHINE, every_row, open_store, record, write_measurement

from lockstep.history import ingest
from lockstep.history import parquet as parts
from lockstep.history.cache_folder import lock_of
from lockstep.history.cache_manifest import Part, read_manifest
from lockstep.history.parquet import MOST_PARTS, PartChecks, mergeable
from lockstep.history.reader import Reader
from lockstep.history.scan import scan
from lockstep.history.store import Store, StoreError, default_cache
from lockstep.processes.end_with_parent import pool
from lockstep.record.model import Estimate

ROOT = Path(__file__).parents[2]


def commit_of(number):
    return f"{number:08x}" + "0" * 32


def write_commits(root, count, machine=MACHINE, variants=3):
    """One file a commit; the latency of each point tells its commit and variant."""
    for number in range(count):
        rows = [
            record(variant=f"v{variant}", latency=Estimate((1 + number) * 1e-6 + variant * 1e-9, 1e-9, 1.0))
            for variant in range(variants)
        ]
        write_measurement(root, rows, machine=machine, commit=commit_of(number), date=DATE + number, proof=False)


def numbers(store):
    """Every value in the store, by machine, commit and series."""
    results = store.current()
    return sorted(
        (
            trend.series.machine,
            results.commits(trend.series.machine)[commit].hash,
            trend.series.text,
            trend.series.benchmark,
            value,
        )
        for trend in results.trends()
        for commit, value in zip(trend.commit.tolist(), trend.value.tolist(), strict=True)
    )


def test_a_folder_that_does_not_exist_yet_fills_up(tmp_path):
    store = open_store(tmp_path / "results")
    assert store.current().series() == ()
    assert store.current().problems[0].what == "the folder does not exist"
    write_measurement(tmp_path / "results", [record()])
    assert len(every_row(store.current())) == 1
    assert store.current().problems == ()


def test_changed_files_are_read_again_and_only_those(tmp_path):
    store = open_store(tmp_path)
    path = write_measurement(tmp_path, [record()])
    first = store.current()
    assert store.current() is first
    write_measurement(tmp_path, [record(variant="other")], commit="f" * 40, date=DATE + 1)
    done = store.refresh()
    assert (done.files, done.changed, done.gone, done.points) == (2, 1, 0, 2)
    assert len(every_row(store.current())) == 2
    path.with_name(f"{COMMIT[:8]}-existing.provenance.jsonl").unlink()
    assert sorted(row.state for row in every_row(store.current())) == ["bare", "ok"]
    path.unlink()
    assert store.refresh().gone == 1
    assert [commit.hash for commit in store.current().commits()] == ["f" * 40]


def test_an_older_picture_still_answers(tmp_path):
    store = open_store(tmp_path)
    path = write_measurement(tmp_path, [record()])
    before = store.current()
    write_measurement(tmp_path, [record(latency=Estimate(7e-6, 6e-6, 8e-6))])
    os.utime(path, ns=(1, 1))
    assert [row.latency.value for row in every_row(store.current())] == [7e-6]
    assert [row.latency.value for row in every_row(before)] == [5e-6]


def test_the_files_are_looked_at_no_more_often_than_asked(tmp_path):
    store = open_store(tmp_path, patience=3600.0)
    write_measurement(tmp_path, [record()])
    first = store.current()
    write_measurement(tmp_path, [record()], commit="f" * 40)
    assert store.current() is first


def test_files_of_folders_that_did_not_change_are_looked_at_seldom(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr("lockstep.history.store.scan", lambda root: looks.append(root) or scan(root))
    monkeypatch.setattr("lockstep.history.store._EVERY_FILE", float("inf"))
    monkeypatch.setattr("lockstep.history.scan._SETTLED_S", 3600.0)
    store = open_store(tmp_path / "results", patience=1e-9)
    path = write_measurement(store.root, [record()], proof=False)
    for _ in range(3):
        store.current()
    assert len(looks) == 3, "somebody may still be writing a file"
    monkeypatch.setattr("lockstep.history.scan._SETTLED_S", -1.0)
    first = store.current()
    assert store.current() is store.current() is first
    assert len(looks) == 4
    write_measurement(store.root, [record()], commit="f" * 40, date=DATE + 1, proof=False)
    assert len(every_row(store.current())) == 2
    another = open_store(store.root, cache=store.cache.parent)
    another.current()
    path.unlink()
    another.current()
    assert len(every_row(store.current())) == 1
    seven = [record(latency=Estimate(7e-6, 6e-6, 8e-6))]
    write_measurement(store.root, seven, commit="f" * 40, date=DATE + 1, proof=False)
    assert [row.latency.value for row in every_row(store.current())] == [5e-6]
    monkeypatch.setattr("lockstep.history.store._EVERY_FILE", 0.0)
    assert [row.latency.value for row in every_row(store.current())] == [7e-6]


def test_many_small_changes_do_not_make_many_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_GRACE", -1.0)
    store = open_store(tmp_path)
    for number in range(3 * parts.MOST_PARTS):
        write_measurement(tmp_path, [record()], commit=commit_of(number), date=DATE + number, proof=False)
        store.refresh()
    assert len(list((store.cache / "parts").iterdir())) <= parts.MOST_PARTS
    assert len(numbers(store)) == 2 * 3 * parts.MOST_PARTS


def test_what_counts_no_more_is_deleted_after_a_while(tmp_path, monkeypatch):
    write_commits(tmp_path, 5)
    store = open_store(tmp_path)
    before = numbers(store)
    [old] = (store.cache / "parts").iterdir()
    for path in (tmp_path / MACHINE).glob("*.json"):
        os.utime(path, ns=(1, 1))
    assert numbers(store) == before
    assert old.exists()
    monkeypatch.setattr(parts, "_GRACE", -1.0)
    store.refresh()
    assert not old.exists()
    assert numbers(store) == before


def test_the_order_of_commits_follows_the_repository(tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()

    def git(*arguments):
        names = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(repo), *names, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    hashes = []
    for subject in ("one", "two"):
        git("commit", "-q", "--allow-empty", "-m", subject)
        hashes.append(git("rev-parse", "HEAD"))
    # By date the second would come first.
    for commit, date in zip(hashes, (DATE + 1, DATE), strict=True):
        write_measurement(tmp_path / "results", [record()], commit=commit, date=date)
    assert [one.hash for one in open_store(tmp_path / "results").current().commits()] == hashes[::-1]
    with_repo = open_store(tmp_path / "results", repo=repo).current()
    assert [(one.hash, one.subject) for one in with_repo.commits()] == list(zip(hashes, ("one", "two"), strict=True))


def test_the_cache_is_never_among_the_results(tmp_path):
    with pytest.raises(StoreError, match="inside the results folder"):
        Store.open(tmp_path, cache=tmp_path / "cache")
    (tmp_path / "link").symlink_to(tmp_path / "results")
    with pytest.raises(StoreError, match="inside the results folder"):
        Store.open(tmp_path / "results", cache=tmp_path / "link" / "cache")
    assert not default_cache(tmp_path).is_relative_to(tmp_path)
    assert default_cache(tmp_path) != default_cache(tmp_path / "other")


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file.*choose another folder"):
        open_store(tmp_path / "results", cache=tmp_path / "file").refresh()


def test_threads_share_a_store(tmp_path):
    root = tmp_path / "results"
    write_commits(root, 20)
    store = open_store(root)
    before = numbers(store)

    def ask(turn):
        if turn % 3 == 0:
            os.utime(root / MACHINE / f"{commit_of(turn)[:8]}-existing.json", ns=(turn, turn))
        return numbers(store)

    with ThreadPoolExecutor(8) as pool:
        assert all(found == before for found in pool.map(ask, range(20)))


REFRESH = textwrap.dedent("""
    import sys
    from pathlib import Path
    import lockstep.history.ingest as ingest
    import lockstep.history.store as store_module
    from lockstep.history.store import Store
    store_module._SAVE_S = 0.0
    ingest._BATCH = 20_000          # many portions, so that a kill falls between two
    ingest._PARTS = 10_000
    ingest._ALONE = int(sys.argv[3])

    def main():
        print("began", flush=True)
        store = Store.open(Path(sys.argv[1]), cache=Path(sys.argv[2]))
        print(store.refresh().points, flush=True)

    if __name__ == "__main__":
        main()
""")


def start(root, cache, script, alone):
    script.write_text(REFRESH)
    command = [sys.executable, str(script), str(root), str(cache), str(alone)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline() == "began\n"
    return process


def runs_in(cache):
    """How many files the cache's manifest has taken in."""
    manifest = next(cache.glob("layout-*"), cache) / "manifest.json"
    return len(read_manifest(manifest).runs) if manifest.exists() else 0


def is_running(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "alone", [pytest.param(2**40, id="one process", marks=pytest.mark.thorough), pytest.param(0, id="several")]
)
def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path, alone):
    root, cache = tmp_path / "results", tmp_path / "cache"
    write_commits(root, 60, variants=8)
    truth = numbers(open_store(root, cache=tmp_path / "other"))
    whole = start(root, tmp_path / "timed", tmp_path / "refresh.py", alone)
    began = time.perf_counter()
    whole.communicate()
    lasts = time.perf_counter() - began
    draw, before = random.Random(7), 0
    for part in range(3):  # early, half way, late
        process = start(root, cache, tmp_path / "refresh.py", alone)
        time.sleep((part + draw.random()) / 3 * lasts)
        process.kill()
        process.communicate()
        done = runs_in(cache)
        assert done >= before, "a killed process took back what another had finished"
        before = done if done < 60 else 0
        if done == 60:
            shutil.rmtree(cache)
        deadline = time.monotonic() + 60
        while is_running(process.pid):
            assert time.monotonic() < deadline, "the processes that it started live on"
            time.sleep(0.05)
    assert numbers(open_store(root, cache=cache)) == truth


def test_two_processes_at_once_do_the_work_once(tmp_path):
    root, cache = tmp_path / "results", tmp_path / "cache"
    write_commits(root, 40)
    truth = numbers(open_store(root, cache=tmp_path / "other"))
    several = [start(root, cache, tmp_path / "refresh.py", 2**40) for _ in range(3)]
    points = [int(process.communicate()[0]) for process in several]
    assert sorted(points) == [0, 0, 2 * 3 * 40]
    assert numbers(open_store(root, cache=cache)) == truth


def test_a_new_cache_that_somebody_else_sets_up_is_waited_for(tmp_path):
    write_commits(tmp_path / "results", 1)
    store = open_store(tmp_path / "results")
    store.cache.mkdir(parents=True)
    with ThreadPoolExecutor(1) as pool, lock_of(store.cache).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refreshed = pool.submit(store.refresh)
        assert not wait([refreshed], timeout=0.2).done
        fcntl.flock(lock, fcntl.LOCK_UN)
    assert refreshed.result().changed == 1


def test_who_does_not_wait_is_served_what_there_is(tmp_path):
    write_commits(tmp_path, 3)
    store = open_store(tmp_path)
    before = numbers(store)
    write_measurement(tmp_path, [record()], commit="f" * 40, date=DATE + 99)
    with lock_of(store.cache).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert numbers(store) == before
    assert len(numbers(store)) == len(before) + 2


def test_machine_code_facts_are_kept_as_json(tmp_path):
    path = write_measurement(tmp_path, [record()])
    beside = path.with_name(path.name.replace(".json", ".provenance.jsonl"))
    lines = beside.read_text().splitlines()
    kernel = {"name": "matmul", "code": "ab12", "registers": 168, "spills": 0, "shared": 1024, "mix": {"HGMMA": 64}}
    told = json.loads(lines[1]) | {"code": {"kernels": [kernel], "host": "cd34"}}
    beside.write_text(f"{lines[0]}\n{json.dumps(told)}\n")
    [latency] = [point for point in open_store(tmp_path).current().at(COMMIT) if point.value == 5e-6]
    assert json.loads(latency.code)["kernels"][0]["registers"] == 168


def cpu(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def test_a_large_file_is_read_by_another_process(tmp_path, monkeypatch):
    """The process that asks for it does not grow by what reading takes."""
    monkeypatch.setattr("lockstep.history.ingest._ALONE", 1 << 20)
    write_many(tmp_path / "results", benchmarks=10_000, commits=1)
    store = open_store(tmp_path / "results")
    both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    before = [cpu(who) for who in both]
    assert store.refresh().points == 10_000
    own, others = (cpu(who) - start for who, start in zip(both, before, strict=True))
    assert others > own


def test_the_documented_snippet_works_as_a_script(tmp_path):
    """A script without ``if __name__ == "__main__"``, with so much to read that other processes read it."""
    write_commits(tmp_path / "results", 4)
    [snippet] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "store.md").read_text(), re.DOTALL)
    script = tmp_path / "script.py"
    script.write_text(f"import lockstep.history.ingest\nlockstep.history.ingest._ALONE = 0\n{snippet}")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) >= 3


def test_an_error_of_a_reading_process_is_the_stores(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "_ALONE", 0)
    write_commits(tmp_path / "results", 1)
    work = ingest.batches(tmp_path / "results", tmp_path / "no folder", scan(tmp_path / "results").files, 1)
    with pytest.raises(OSError, match="no folder"):
        list(ingest.read_all(work))


def test_queries_share_the_footers_of_parts(tmp_path):
    setting = Reader(tmp_path, PartChecks())._cursor().execute("SELECT current_setting('parquet_metadata_cache')")
    assert setting.fetchone() == (True,)


def test_one_merge_leaves_few_parts():
    """A small part beside large ones must not leave the merge of the large ones to a refresh without news."""
    sizes = [50_000, *[830_000] * 17]
    parts = [Part(str(place), "box", rows) for place, rows in enumerate(sizes)]
    [merged] = mergeable(parts, {part.name: part.rows for part in parts})
    left = [part for part in parts if part not in merged]
    left.append(Part("new", "box", sum(part.rows for part in merged)))
    assert len(left) <= MOST_PARTS
    assert mergeable(left, {part.name: part.rows for part in left}) == []


def test_a_process_that_reads_files_prints_no_progress_of_duckdb(tmp_path):
    """DuckDB prints it on standard output, beside what a verb prints, in a process that was started with -c."""
    program = """
import duckdb, sys
import numpy as np
from pathlib import Path
from lockstep.history import parquet

def soon(*words, connect=duckdb.connect, **options):
    connection = connect(*words, **options)
    connection.execute("SET progress_bar_time = 1")
    return connection

duckdb.connect = soon
numbers = np.arange(500_000)
parquet.write_part(Path(sys.argv[1]), "box", {"series": numbers, "run": numbers, "value": np.sqrt(numbers)})
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], cwd=ROOT, capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b""


_FORKED: list[Store] = []


def _numbers_in_fork(_):
    signal.alarm(60)  # without an answer, the process is killed and the pool breaks
    return numbers(_FORKED[0])


def test_a_forked_process_reads_what_its_parent_has_read(tmp_path):
    write_commits(tmp_path / "results", 3)
    store = open_store(tmp_path / "results")
    read = numbers(store)
    assert read
    _FORKED[:] = [store]
    with pool(1) as workers:
        assert list(workers.map(_numbers_in_fork, [0, 1])) == [read, read]
