"""What was found out is kept, by several processes at once, and a broken file costs nothing but time."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

from lockstep.machine_code.cache import RETENTION_S, VERSION, Cache


def test_what_is_put_is_got(tmp_path):
    cache = Cache(tmp_path / "deep" / "cache.sqlite")
    cache.put({"a": {"x": [1, 2]}, "b": None})
    assert cache.get(["a", "b", "c"]) == {"a": {"x": [1, 2]}, "b": None}
    assert Cache(tmp_path / "deep" / "cache.sqlite").get(["a"]) == {"a": {"x": [1, 2]}}


def test_the_folder_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "chosen"))
    Cache().put({"a": 1})
    assert (tmp_path / "chosen" / f"machine-code-{VERSION}.sqlite").is_file()


def test_a_broken_file_is_replaced(tmp_path):
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"no database" * 100)
    cache = Cache(path)
    assert cache.get(["a"]) == {}
    cache.put({"a": 1})
    assert cache.get(["a"]) == {"a": 1}


def test_a_folder_that_cannot_be_written_is_borne(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache.sqlite")
    cache.put({"a": 1})
    assert cache.get(["a"]) == {}


def test_what_nobody_asks_for_is_forgotten(tmp_path):
    path = tmp_path / "cache.sqlite"
    cache = Cache(path)
    cache.put({"old": 1, "used": 2})
    with sqlite3.connect(path) as database:
        database.execute("UPDATE kept SET used = used - ?", (RETENTION_S + 60,))
    database.close()
    cache.get(["used"])
    cache.put({"new": 3})
    assert cache.get(["old", "used", "new"]) == {"used": 2, "new": 3}


def test_many_may_write_at_once_and_wait_for_who_does(tmp_path):
    path = tmp_path / "cache.sqlite"
    cache = Cache(path)
    with ThreadPoolExecutor(4) as pool, closing(sqlite3.connect(path, isolation_level=None)) as another:
        another.execute("BEGIN IMMEDIATE")
        done = [pool.submit(cache.put, {str(number): number}) for number in range(8)]
        assert not wait(done, timeout=0.2).done
        another.execute("COMMIT")
    assert len(cache.get(map(str, range(8)))) == 8
