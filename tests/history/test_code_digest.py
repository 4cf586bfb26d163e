"""A cache that other code made is not used."""

import os
import shutil
import time
from pathlib import Path

from trees import open_store, record, write_measurement

from lockstep.history.cache_folder import code_digest

ROOT = Path(__file__).parents[2]


def test_a_change_of_a_module_is_another_digest(tmp_path):
    package = tmp_path / "lockstep"
    shutil.copytree(ROOT / "lockstep", package, ignore=shutil.ignore_patterns("__pycache__"))
    assert code_digest(package) == code_digest()
    file = package / "history" / "point_columns.py"
    text = file.read_text()
    for change in (lambda: file.write_text(f"{text}\n# changed\n"), lambda: file.rename(file.with_name("other.py"))):
        code_digest.cache_clear()
        change()
        assert code_digest(package) != code_digest()
        file.with_name("other.py").unlink(missing_ok=True)
        file.write_text(text)


def test_caches_of_other_code_are_deleted_when_nobody_has_used_them_for_a_week(tmp_path):
    write_measurement(tmp_path / "results", [record()])
    cache = tmp_path / "cache"
    old, recent = cache / "layout-old", cache / "layout-recent"
    for folder in (old, recent):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 8 * 86_400,) * 2)
    store = open_store(tmp_path / "results", cache=cache)
    assert store.current().runs
    assert sorted(cache.glob("layout-*")) == sorted([store.cache, recent])
