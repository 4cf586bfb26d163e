"""A cache that other code made is not used: whatever module decides its content changes its name."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trees import open_store, record, write_measurement

from lockstep.alerts.analysis.cache_files import FOUND_BY
from lockstep.history.cache_catalog import MADE_BY
from lockstep.history.code_digest import code_digest, code_files

ROOT = Path(__file__).parents[2]

#: Modules that one would not think of, and what they decide.
DECIDES = {
    MADE_BY: [
        "lockstep/history/asv_file_header.py",  # which files are read
        "lockstep/history/validation.py",  # which numbers
        "lockstep/history/columns.py",  # what is stored
        "lockstep/record/model.py",  # what a record says
        "lockstep/record/shared_fields.py",
    ],
    FOUND_BY: [
        "lockstep/detect/detector.py",
        "lockstep/alerts/cause/attribution.py",
        "lockstep/history/repeats.py",
        "lockstep/alerts/analysis/findings_files.py",
        "lockstep/timing/intervals.py",  # standard errors
        "lockstep/suite/thresholds.py",  # what counts
    ],
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    root = tmp_path_factory.mktemp("code")
    for package in ("dashboard", "lockstep"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("*.js", "__pycache__"))
    return root


@pytest.mark.parametrize(
    ("modules", "path"), [(modules, path) for modules, paths in DECIDES.items() for path in paths], ids=str
)
def test_a_change_of_a_module_that_decides_is_another_digest(copied, modules, path):
    before = code_digest(*modules, root=copied)
    file = copied / path
    text = file.read_text()
    code_digest.cache_clear()
    file.write_text(text + "\n# changed\n")
    assert code_digest(*modules, root=copied) != before
    file.write_text(text)
    code_digest.cache_clear()
    assert code_digest(*modules, root=copied) == before


@pytest.mark.parametrize("modules", DECIDES)
def test_every_module_that_is_loaded_on_the_way_is_in_it(modules):
    """What Python loads for these modules, and no page."""
    code = "import importlib, json, sys; [importlib.import_module(name) for name in sys.argv[1:]]; print(json.dumps("
    code += "[m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] in ('dashboard', 'lockstep')]))"
    told = subprocess.run([sys.executable, "-c", code, *modules], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = {Path(one) for one in json.loads(told.stdout)}
    files = set(code_files(modules))
    assert loaded <= files
    assert not [path for path in files if "pages" in path.relative_to(ROOT).parts]


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
