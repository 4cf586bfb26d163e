"""Shards that are killed at random moments, and merges that run at once: nothing is lost, and nothing is there twice.

The verbs, asv, the recorder and the merge are the real ones. The worker alone is another: it says the same numbers in
each run, so that results can be compared.
"""

import json
import random
import shutil
import signal

import pytest
from project import make_project

#: Dies at the given one of the moments at which a run changes a file: before it opens one to write, before it renames
#: one, and in the middle of what asv writes.
PREAMBLE = """
import json, os, signal, sys
from pathlib import Path
from lockstep.asv import recorder, worker_client
from lockstep.record.model import Clocks, Estimate, Record
from lockstep.suite.discovery import load_suites

class Steady(worker_client.Worker):
    def __init__(self, spec, silence_s):
        self.host = {"device": "cpu", "gpu": "made", "gpu_uuid": os.environ["MADE_GPU"]}

    def measure(self, suite, case, l2, variants, failed, **rest):
        records = []
        for name in variants:
            value = (1 + len(name) + 7 * len(case)) * 1e-6
            estimate = Estimate(value, value / 2, 2 * value)
            clocks = Clocks(told_mhz=1000.0 + len(name))
            version = load_suites(Path("benchmarks"))[suite].benchmark_version
            records.append(Record(suite, name, case, l2, "ok", version, latency=estimate, speedup=estimate,
                baseline="plain", latency_samples=(value,) * 3, clocks=clocks, started_at="2026-01-01T00:00:00+00:00"))
        return records, {}, {"time": 1.0}

    def run(self, arguments, cwd):
        open(arguments[4], "w").write("42")
        return 0, ""

    def close(self, patience_s=5.0): ...

recorder.Recorder.__init__.__kwdefaults__["worker"] = Steady
left = int(os.environ.get("DIE_AT", "0"))
seen = 0

def moment():
    global left, seen
    left -= 1
    seen += 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def watch(event, arguments):
    written = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if (written or event == "os.rename") and "results" in str(arguments[0]):
        moment()

sys.addaudithook(watch)
dump = json.dump
def halting(content, file, **options):
    text = json.dumps(content, **options)
    file.write(text[: len(text) // 2])
    file.flush()
    if "results" in str(getattr(file, "name", "")):
        moment()
    file.write(text[len(text) // 2 :])
json.dump = halting
import atexit
if "MOMENTS" in os.environ:
    atexit.register(lambda: print("MOMENTS", seen))
"""

#: What differs from run to run: times of the run itself.
TIMES = ("recorded_at", "spent_s", "durations", "harness")


def run(project, place, die_at=0, **settings):
    """Measure a shard, as its GPU would; return the process and what it printed."""
    words = ("run", "HEAD~2..HEAD", "--shard", f"{place}/2", "--skip-existing", "--machine", "here")
    process = project.popen(*words, before=PREAMBLE, MADE_GPU=f"GPU-{place}", DIE_AT=str(die_at), **settings)
    shown, _ = process.communicate(timeout=200)
    return process.returncode, shown


def merged(project):
    """Everything that a merge of the shards leaves, without times."""
    done = project.lockstep("merge", "results-shards")
    assert done.returncode == 0, done.stdout
    return contents(project.root / "results")


def contents(folder):
    found = {}
    for path in sorted(folder.rglob("*.json*")):
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.suffix == ".jsonl" else None
        rows = rows if rows is not None else [json.loads(path.read_text())]
        for row in rows:
            for name in TIMES:
                row.pop(name, None)
            for share in row.get("gpus", {}).values():
                for name in TIMES:
                    share.pop(name, None)
            for values in row.get("results", {}).values():
                del values[3:5]  # started_at and duration
        found[str(path.relative_to(folder))] = json.dumps(rows, sort_keys=True)
    return found


@pytest.mark.thorough
def test_shards_killed_at_random_moments_lose_nothing(tmp_path):
    project = make_project(tmp_path / "project")
    project.write("toy/other.py", "")
    project.commit("Add another module")
    status, shown = run(project, 1, MOMENTS="yes")
    assert status == 0, shown
    moments = int(shown.rpartition("MOMENTS")[2].split()[0])
    assert moments > 20
    assert run(project, 2)[0] == 0
    expected = merged(project)
    assert len([name for name in expected if name.startswith("here-cpu/")]) == 6  # two commits, machine and clocks
    shutil.rmtree(project.root / "results")
    shutil.rmtree(project.root / "results-shards")

    chance = random.Random(1)
    kills = 0
    while kills < 20:
        place = chance.choice((1, 2))
        status, shown = run(project, place, chance.randint(1, moments))
        assert status in (0, -signal.SIGKILL), shown
        kills += status != 0
        if status == 0 and kills < 16:
            shutil.rmtree(project.root / "results-shards" / f"{place}-of-2")
        if kills % 5 == 4:
            both = [project.popen("merge", "results-shards") for _ in range(2)]
            for process in both:
                told, _ = process.communicate(timeout=200)
                assert process.returncode == 0, told
    for place in (1, 2):
        status, shown = run(project, place)
        assert status == 0, shown
    assert merged(project) == expected
