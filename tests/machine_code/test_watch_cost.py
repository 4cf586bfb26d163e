"""The watch raises few audit events of its own: Python calls a function for each, which once took half of a trace."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

WORK = """
import copy
import re
import time
import tomllib

HELD = list(range(1000))
TEXT = "\\n".join([f"n{i} = {i}" for i in HELD])


def nothing():
    pass


def work():
    for _ in range(1000):
        nothing()


def plain():
    return copy.deepcopy(HELD)


def read():
    return tomllib.loads(TEXT)


def called_back():
    return re.sub("a", lambda found: str(time.time()), "a")


def afterwards():
    return plain(), read(), time.time()
"""

SCRIPT = """
import json, sys
from collections import Counter
from pathlib import Path
from lockstep.machine_code.watch.watch import Watch

raised, counting = Counter(), False
sys.addaudithook(lambda event, _: raised.update([event] * counting))
root = Path(sys.argv[1])
sys.path.insert(0, str(root))
watch = Watch(("toy",), frozenset(), root)
with watch.loads():
    import toy.work
reasons = []
watch.begin_case()
with watch.calls(reasons.append):
    counting = True
    getattr(toy.work, sys.argv[2])()
    counting = False
print(json.dumps([raised, reasons]))
"""


def watched(tmp_path, function):
    """Return the number of audit events by name while a function runs, and the reasons to distrust it."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/__init__.py").touch()
    (tmp_path / "toy/work.py").write_text(WORK)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path, function],
        capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    raised, reasons = json.loads(done.stdout)
    return Counter(raised), reasons


@pytest.mark.parametrize(
    ("function", "questions"),
    [
        pytest.param("work", 1100, id="a call of the code under test: one"),
        pytest.param("plain", 2200, id="what is always allowed: one for each call of Python, none for C"),
        pytest.param("read", 100, id="TOML is not watched, but the text is"),
    ],
)
def test_the_watch_asks_a_frame_for_its_code_as_rarely_as_it_can(tmp_path, function, questions):
    raised, reasons = watched(tmp_path, function)
    assert raised["object.__getattr__"] < questions
    assert reasons == []


def test_the_watch_tells_objects_apart_without_an_event(tmp_path):
    assert watched(tmp_path, "work")[0]["builtins.id"] < 10


@pytest.mark.parametrize("function", ["called_back", "afterwards"])
def test_code_under_test_is_watched_within_and_after_what_is_always_allowed(tmp_path, function):
    assert any("time" in reason for reason in watched(tmp_path, function)[1])
