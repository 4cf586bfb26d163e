"""A process that starts slowly is waited for; one that hangs, dies or goes on is told apart, and ends with us."""

import gc
import textwrap
from pathlib import Path

import pytest

from lockstep.asv.worker_client import Worker, WorkerSpec
from lockstep.processes.watched_worker import Watched, WorkerDied
from lockstep.timing.rules.rule import Rule

#: Comes up after a while, then does what it is asked.
SLOW = """
    import json, os, sys, time

    def emit(event, **facts):
        os.write(int(sys.argv[2]), json.dumps({"event": event, **facts}).encode() + b"\\n")

    time.sleep(float(sys.argv[3]))
    emit("ready")
    for line in sys.stdin:
        exec(json.loads(line)["do"])
"""


LOUD = "printed more than 64 MiB "
GONE = "ended with exit status 9 while timing"


@pytest.fixture
def worker(tmp_path, monkeypatch, request):
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    silence_s, start_s = getattr(request, "param", (60.0, 0.0))
    worker = Watched("slow", [str(start_s)], silence_s)
    assert worker.wait("ready") == {"event": "ready"}
    yield worker
    worker.close(patience_s=0.0)


@pytest.mark.parametrize("worker", [(0.25, 0.5)], indirect=True)
def test_a_slow_start_is_borne_and_a_silence_afterwards_is_not(worker):
    worker.ask({"do": "time.sleep(1000)"})
    with pytest.raises(WorkerDied) as died:
        worker.wait("done")
    assert (died.value.how, died.value.variant, died.value.at_start) == ("hung for 0.25 s on a request", "", False)


def test_events_come_in_order_and_stages_are_kept_back(worker):
    worker.ask({"do": "emit('stage', stage='check', variant='a'); emit('other'); emit('done', value=1)"})
    assert [event["event"] for event in worker.until("done")] == ["other", "done"]


@pytest.mark.parametrize(
    ("does", "how", "variant"),
    [
        ("emit('stage', stage='check', variant='a'); os.kill(os.getpid(), 9)", "killed by SIGKILL in its check", "a"),
        ("emit('stage', stage='time', variant=''); os.kill(os.getpid(), 11)", "killed by SIGSEGV while timing", ""),
        ("print('no room'); sys.exit(3)", "ended with exit status 3 on a request: no room", ""),
        ("sys.exit(70)", "broke the CUDA context", ""),
        ("emit('lost', variant='a', reason='so'); sys.exit(70)", "broke the CUDA context (so)", "a"),
        ("emit('lost', variant='', reason='replaced x', rule='r'); sys.exit(70)", "replaced x", ""),
        ("os.write(int(sys.argv[2]), b'not an event\\n')", "wrote to the harness's own pipe on a request", ""),
        ("os.write(int(sys.argv[2]), b'[1]\\n')", "wrote to the harness's own pipe on a request", ""),
        ("emit('stage', stage='load', variant=''); exec('while 1: print(10**6 * chr(9))')", LOUD + "in its import", ""),
        ("exec('while 1: os.write(int(sys.argv[2]), bytes(1 << 16))')", "wrote an event without end on a request", ""),
        # The child keeps the way for events open after its parent has gone.
        ("emit('stage', stage='time', variant=''); os.fork() or time.sleep(1000); os._exit(9)", GONE, ""),
    ],
)
def test_how_it_ended_and_what_it_was_doing_is_said(worker, does, how, variant):
    worker.ask({"do": does})
    with pytest.raises(WorkerDied) as died:
        worker.wait("done")
    assert (died.value.how, died.value.variant, died.value.at_start) == (how, variant, False)


@pytest.mark.parametrize("worker", [(0.5, 0.0)], indirect=True)
def test_events_without_end_are_a_hang(worker, monkeypatch):
    monkeypatch.setattr("lockstep.processes.watched_worker.MOST_SILENCES", 4)
    worker.ask({"do": 'exec(\'while 1: emit("stage", stage="time", variant="")\')'})
    with pytest.raises(WorkerDied, match=r"did not answer for 2 s while timing") as died:
        worker.wait("done")
    assert died.value.rule == Rule.HUNG


@pytest.mark.parametrize("worker", [(0.25, 0.0)], indirect=True)
def test_no_signal_and_no_handler_keeps_one_that_hangs(worker):
    worker.ask({"do": "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]; time.sleep(1000)"})
    with pytest.raises(WorkerDied, match="hung") as died:
        worker.wait("done")
    assert died.value.rule == Rule.HUNG


def test_one_that_does_what_the_parent_forbids_is_killed(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = Watched("slow", ["0"], 60.0, look=lambda pid: "hoards")
    with pytest.raises(WorkerDied, match="hoards at start"):
        worker.wait("ready")
    worker.close(patience_s=0.0)


def test_one_at_work_is_ended_at_once(worker):
    worker.ask({"do": "emit('other'); time.sleep(1000)"})
    worker.wait("other")
    worker.ask({"do": "emit('done')"})
    worker.close(patience_s=1000.0)


def test_one_that_is_done_ends_by_itself(worker, tmp_path):
    done = tmp_path / "ended"
    worker.ask({"do": f"import atexit; atexit.register(open, {str(done)!r}, 'w'); emit('done')"})
    worker.wait("done")
    worker.close(patience_s=60.0)
    assert done.exists()


def _open_files():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_worker_of_a_commit_that_never_comes_up_leaves_nothing_open(tmp_path):
    (tmp_path / "suites").mkdir()
    before = _open_files()
    with pytest.raises(WorkerDied, match="is not a package of suites"):
        Worker(WorkerSpec(tmp_path, ("toy",), tmp_path / "suites"), silence_s=60.0)
    gc.collect()
    assert _open_files() <= before


def test_one_that_never_comes_up_says_so(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("raise ImportError('no torch')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = Watched("broken", [], silence_s=60.0)
    with pytest.raises(WorkerDied) as died:
        worker.wait("ready")
    assert died.value.at_start
    assert died.value.how == "ended with exit status 1 at start: ImportError: no torch"
    worker.close()
