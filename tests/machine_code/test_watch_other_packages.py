"""A function of another package that the code under test calls is judged by what it does, not by its name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

OTHER = """
import functools
import importlib.metadata
import importlib.util
import os
import time

PRESENT = importlib.util.find_spec("nothing_of_this_name") is not None
STARTED = time.time()
ASKED = os.environ.get("NOTHING_OF_THIS_NAME")


@functools.lru_cache
def is_there():
    return importlib.util.find_spec("nothing_of_this_name") is not None


@functools.lru_cache
def version():
    return importlib.metadata.version("pytest")


def present():
    return PRESENT


@functools.lru_cache
def processors():
    return os.cpu_count()


def started():
    return STARTED


def asked():
    return ASKED


is_there(), version(), processors()  # each remembers its answer before anything is watched
"""

SCRIPT = """
import json, sys
from pathlib import Path
from lockstep.machine_code.watch.watch import Watch

root, how, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.path[:0] = [str(root / "tree"), str(root / "site")]
watch = Watch(("toy",), frozenset(), root / "tree")
with watch.loads():
    import toy.work
found = []
for call in range(2):
    reasons = []
    with watch.calls(reasons.append):
        getattr(toy.work, how)()
    found.append(reasons[:1])
print(json.dumps([list(watch.loading.values()), found]))
"""


def watched(tmp_path, how, name, at_import=""):
    for path, text in {
        "site/other/__init__.py": OTHER,
        "tree/toy/__init__.py": "",
        "tree/toy/work.py": f"from other import {name}\n{at_import}\n\ndef above():\n    return {name}()\n\n\n"
        f"def within():\n    from other import {name} as found\n    return found()\n\n\ndef nothing():\n    return 1\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path, how, name],
        capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("how", ["above", "within"])
@pytest.mark.parametrize("name", ["is_there", "version", "present"])
def test_it_may_ask_what_is_installed(tmp_path, how, name):
    assert watched(tmp_path, how, name, at_import=f"ANSWER = {name}()") == [[], [[], []]]


@pytest.mark.parametrize("how", ["above", "within"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("processors", "cpu_count"),
        ("started", "reads other.STARTED, which was set while nothing was watched"),
        ("asked", "reads other.ASKED, which was set while nothing was watched"),
    ],
)
def test_whatever_else_it_asks_is_a_doubt_at_every_call(tmp_path, how, name, said):
    loading, found = watched(tmp_path, how, name)
    assert loading == []
    assert all(reasons and said in reasons[0] for reasons in found), found


@pytest.mark.parametrize("name", ["processors", "started"])
def test_a_module_that_asks_while_it_is_imported_is_in_doubt(tmp_path, name):
    loading, _ = watched(tmp_path, "nothing", name, at_import=f"ANSWER = {name}()")
    assert len(loading) == 1
    assert "while toy.work is imported" in loading[0]
