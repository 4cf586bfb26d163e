"""The watch raises few audit events of its own: Python calls a function for each, which once took half of a trace."""

import json
import subprocess
import sys
from pathlib import Path

WORK = """
HELD = list(range(1000))


def nothing():
    pass


def work():
    for _ in range(1000):
        nothing()
"""

SCRIPT = """
import json, sys
from collections import Counter
from pathlib import Path
from lockstep.machine_code.watch import Watch

raised, counting = Counter(), False
sys.addaudithook(lambda event, _: raised.update([event] * counting))
root = Path(sys.argv[1])
sys.path.insert(0, str(root))
watch = Watch(("toy",), frozenset(), root)
with watch.loads():
    import toy.work
counting = True
watch.begin_case()
with watch.calls(print):
    toy.work.work()
counting = False
print(json.dumps(raised))
"""


def test_a_watched_call_raises_at_most_one_event_and_a_held_value_none(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/__init__.py").touch()
    (tmp_path / "toy/work.py").write_text(WORK)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path],
        capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    raised = json.loads(done.stdout)
    assert raised["object.__getattr__"] < 1100, "1000 calls, each with one question for its code"
    assert raised.get("builtins.id", 0) < 10
