"""A damaged or deleted cache never gives wrong points, and is made again from the result files by itself."""

import fcntl
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from trees import DATE, MACHINE, newest_points, open_store, record, write_measurement

from dashboard.server.app import create_app
from lockstep.history import store as store_module
from lockstep.history.cache_folder import DamagedCache, lock_of, moved_aside
from lockstep.history.cache_manifest import Manifest, Part, read_manifest
from lockstep.record.model import Estimate

COMMITS = 30


def write_commits(root):
    for number in range(COMMITS):
        rows = [
            record(variant=f"v{variant}", latency=Estimate((1 + number + variant / 7) * 1e-6, 1e-9, 1.0))
            for variant in range(30)
        ]
        commit = f"{number:08x}" + "0" * 32
        write_measurement(root, rows, machine=MACHINE, commit=commit, date=DATE + number, proof=False)


def points(store):
    """Every value, by commit and series."""
    results = store.current()
    commits = [commit.hash for commit in results.commits(MACHINE)]
    return {
        (commits[commit], trend.series.text, trend.series.benchmark): value
        for trend in results.trends()
        for commit, value in zip(trend.commit.tolist(), trend.value.tolist(), strict=True)
    }


def points_at_the_second_try(store):
    """Every value; a query that meets damage may say so, once."""
    try:
        return points(store)
    except DamagedCache:
        return points(store)


def flip(path, bits, seed=0):
    content, draw = bytearray(path.read_bytes()), random.Random(seed)
    for place in draw.sample(range(8 * len(content)), bits):
        content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


def zero(path, start):
    content = bytearray(path.read_bytes())
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    path.write_bytes(content)


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


DAMAGES = {
    "part: zeros": lambda cache, part, manifest: zero(part, 4096),
    "part: bits": lambda cache, part, manifest: flip(part, 200),
    "part: one bit": lambda cache, part, manifest: flip(part, 1),
    "part: cut": lambda cache, part, manifest: cut(part, -100),
    "part: lost": lambda cache, part, manifest: part.unlink(),
    "parts: lost": lambda cache, part, manifest: shutil.rmtree(part.parent),
    "manifest: header": lambda cache, part, manifest: zero(manifest, 0),
    "manifest: bits": lambda cache, part, manifest: flip(manifest, 40),
    "manifest: one bit": lambda cache, part, manifest: flip(manifest, 1, seed=2),
    "manifest: cut": lambda cache, part, manifest: cut(manifest, -100),
    "manifest: text": lambda cache, part, manifest: manifest.write_text("no manifest" * 1000),
    "manifest: empty": lambda cache, part, manifest: manifest.write_bytes(b""),
    "manifest: lost": lambda cache, part, manifest: manifest.unlink(),
    "all lost": lambda cache, part, manifest: shutil.rmtree(cache),
}


def damage(cache, name):
    [part] = (cache / "parts").iterdir()
    DAMAGES[name](cache, part, cache / "manifest.json")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged") / "results"
    write_commits(root)
    return root


@pytest.fixture
def cache(results, tmp_path):
    return tmp_path / "cache"


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_cache_is_made_again_by_whoever_meets_it(results, cache, name):
    store = open_store(results, cache=cache)
    before = points(store)
    damage(store.cache, name)
    assert points_at_the_second_try(store) == before
    assert points(store) == before
    damage(store.cache, name)
    assert points_at_the_second_try(open_store(results, cache=cache)) == before
    assert points(open_store(results, cache=cache)) == before


def test_no_damage_gives_wrong_points(results, cache):
    store = open_store(results, cache=cache)
    before = points(store)
    for seed in range(3):
        damaged = next((store.cache / "parts").glob("*.parquet"))
        flip(damaged, 1 + seed, seed)
        assert points_at_the_second_try(open_store(results, cache=cache)) == before
        flip(store.cache / "manifest.json", 1 + seed, seed)
        assert points_at_the_second_try(open_store(results, cache=cache)) == before


@pytest.mark.parametrize("name", ["part: bits", "manifest: bits"])
def test_a_damaged_cache_is_kept_aside_and_said_once(results, cache, caplog, name):
    store = open_store(results, cache=cache)
    snapshot = store.current()
    [part] = (store.cache / "parts").iterdir()
    damage(store.cache, name)
    if name.startswith("part"):
        with pytest.raises(DamagedCache, match="made again from the result files: try again"):
            newest_points(snapshot, MACHINE)
    points_at_the_second_try(store)
    points(open_store(results, cache=cache))
    aside = cache / moved_aside(store.cache)
    assert (aside / "parts" / part.name).exists()
    # asv's handler prints the message of a record without its arguments.
    [record] = caplog.records
    assert re.search(rf"{store.cache.name} is damaged .*kept as {aside.name}.*check the disk", record.msg)
    [note] = [note for note in store.current().notes if note.path == aside.name]
    assert "was damaged and made again" in note.what
    assert note in open_store(results, cache=cache).current().notes


def test_a_part_that_a_merge_of_another_process_replaced_long_ago_is_not_damage(results, cache):
    store = open_store(results, cache=cache)
    before, snapshot = points(store), store.current()
    [part] = (store.cache / "parts").iterdir()
    other = part.rename(part.with_name(f"{'0' * 12}{part.name[12:]}"))
    manifest = read_manifest(store.cache / "manifest.json")
    renamed = Part(other.name, *manifest.parts[part.name][1:])
    manifest.merged(list(manifest.parts.values()), renamed).write(store.cache / "manifest.json")
    with pytest.raises(DamagedCache):
        newest_points(snapshot, MACHINE)
    assert points(store) == before
    assert not moved_aside(store.cache)


def test_a_part_that_was_damaged_before_a_merge_does_not_enter_another_part(tmp_path, monkeypatch):
    root = tmp_path / "results"
    write_commits(root)
    store = open_store(root)
    store.current()
    damage(store.cache, "part: zeros")
    monkeypatch.setattr(store_module, "mergeable", lambda parts, live: [parts])
    store = open_store(root)
    store.refresh()
    monkeypatch.undo()
    assert points(store) == points(open_store(root, cache=tmp_path / "other"))


@pytest.mark.parametrize("name", ["part: lost", "all lost"])
def test_a_process_waits_while_another_makes_lost_points_again(results, cache, name):
    store = open_store(results, cache=cache)
    before = points(store)
    damage(store.cache, name)
    store.cache.mkdir(exist_ok=True)
    with ThreadPoolExecutor(1) as pool, (lock_of(store.cache)).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asked = pool.submit(points, store)
        assert not wait([asked], timeout=0.2).done
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert asked.result() == before


def test_an_unfinished_manifest_is_not_read_while_there_is_a_snapshot(results, cache):
    store = open_store(results, cache=cache)
    before = points(store)
    with (lock_of(store.cache)).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        damage(store.cache, "manifest: lost")
        Manifest().write(store.cache / "manifest.json")
        assert points(store) == before
    assert points(store) == before


@pytest.mark.parametrize("name", ["all lost", "manifest: header", "part: zeros"])
def test_pages_and_the_health_check_agree_while_the_dashboard_runs(results, cache, name):
    store = open_store(results, cache=cache)
    client = create_app(store).server.test_client()
    address = f"/api/v1/points/{MACHINE}/{'0' * 40}"
    before = client.get(address)
    assert before.status_code == 200
    damage(store.cache, name)
    assert client.get(address).json == before.json
    assert client.get("/healthz").status_code == 200


def test_a_cache_that_is_deleted_while_files_are_read_is_made_again(results, cache, monkeypatch):
    before = points(open_store(results, cache=cache))
    store = open_store(results, cache=cache.with_name("other"))
    with_batch, deleted = Manifest.with_batch, []

    def delete_first(manifest, batch):
        if not deleted:
            deleted.append(shutil.rmtree(store.cache))
        return with_batch(manifest, batch)

    monkeypatch.setattr(Manifest, "with_batch", delete_first)
    assert points(store) == before
    assert deleted


def test_the_health_check_fails_while_the_cache_cannot_be_made_again(results, cache):
    store = open_store(results, cache=cache)
    client = create_app(store).server.test_client()
    assert client.get("/healthz").status_code == 200
    shutil.rmtree(cache)
    cache.write_text("a file")
    assert client.get("/healthz").status_code == 503
    cache.unlink()
    assert client.get("/healthz").status_code == 200
