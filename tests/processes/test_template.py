"""A fork of a template is a worker as any other: it answers, hangs, dies, and ends with us."""

import os
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lockstep.processes.end_with_parent import reap, start
from lockstep.processes.template import Template
from lockstep.processes.watched_worker import Watched, WorkerDied

#: Does what it is asked. ``slow`` is what the template imports ahead.
OBEYS = """
    import json, os, signal, sys, tempfile, time

    import slow

    from lockstep.processes.worker import WorkerProcess


    def main():
        process = WorkerProcess("obeys")
        process.parser.add_argument("--reads", type=int)
        options = process.parse()
        process.emit("ready", imported_in=slow.PID, pid=os.getpid(), folder=tempfile.gettempdir(), cwd=os.getcwd())
        names = {**globals(), "process": process, "options": options}
        for request in process.requests():
            exec(request["do"], names)
        return 3
"""

SLOW = """
    import os, tempfile, time

    time.sleep(0.5)
    tempfile.gettempdir()
    PID = os.getpid()
"""


@pytest.fixture
def template(tmp_path, monkeypatch):
    (tmp_path / "obeys.py").write_text(textwrap.dedent(OBEYS))
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    template = Template(["obeys", "no_such_module"])
    yield template
    template.close()


def forked(template, silence_s=30.0, *arguments, **options):
    return Watched("obeys", arguments, silence_s, template=template, **options)


def test_forks_share_the_imports_of_the_template_and_nothing_else(template, tmp_path):
    workers = [forked(template, environment={**os.environ, "TMPDIR": str(tmp_path), "N": str(n)}) for n in range(2)]
    ready = [worker.wait("ready") for worker in workers]
    assert len({one["imported_in"] for one in ready}) == 1
    assert len({one["pid"] for one in ready} | {ready[0]["imported_in"]}) == 3
    assert [one["folder"] for one in ready] == [str(tmp_path)] * 2
    for n, worker in enumerate(workers):
        worker.ask({"do": "process.emit('done', n=os.environ['N'], leads=os.getsid(0) == os.getpid())"})
        assert worker.wait("done") == {"event": "done", "n": str(n), "leads": True}
    for worker in workers:
        worker.close()


def test_a_fork_has_its_files_and_no_others(template, tmp_path):
    (tmp_path / "text").write_text("said")
    with (tmp_path / "text").open() as file, (tmp_path / "text").open():
        worker = forked(template, 30.0, "--reads", str(file.fileno()), pass_fds=[file.fileno()])
        worker.wait("ready")
        worker.ask({"do": "said = os.read(options.reads, 9).decode()"})
        worker.ask({"do": "process.emit('done', fds=os.listdir('/proc/self/fd'), said=said)"})
        done = worker.wait("done")
        assert done["said"] == "said"
        assert len(done["fds"]) == 6  # three standard ones, the reply, the file, and the listing
        worker.close()


@pytest.mark.parametrize(
    ("do", "how"),
    [
        ("os._exit(9)", "ended with exit status 9 on a request"),
        ("sys.exit(4)", "ended with exit status 4 on a request"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV on a request"),
        ("raise ValueError('why')", "ended with exit status 1 on a request: ValueError: why"),
        ("time.sleep(1000)", "hung for 1 s on a request"),
    ],
)
def test_how_a_fork_ended_is_known(template, do, how):
    worker = forked(template, 1.0)
    worker.wait("ready")
    worker.ask({"do": do})
    with pytest.raises(WorkerDied) as died:
        worker.wait("done")
    assert died.value.how == how
    worker.close()


def test_a_fork_ends_with_its_input_and_its_children_with_it(template):
    worker = forked(template)
    pid = worker.wait("ready")["pid"]
    worker.ask({"do": "process.emit('done', child=os.fork() or time.sleep(1000))"})
    child = worker.wait("done")["child"]
    worker.close()
    assert not running(pid)
    assert not running(child)


def test_a_paused_fork_does_nothing(template):
    worker = forked(template)
    pid = worker.wait("ready")["pid"]
    with worker.paused():
        until = time.monotonic() + 10
        while state_of(pid) != "T" and time.monotonic() < until:
            time.sleep(0.01)
        assert state_of(pid) == "T"
    worker.ask({"do": "process.emit('done')"})
    worker.wait("done")
    worker.close()


def test_forks_end_with_their_template_and_no_further_ones_start(template):
    worker = forked(template)
    pid = worker.wait("ready")["pid"]
    template.close()
    with pytest.raises(WorkerDied, match="killed by SIGKILL"):
        worker.wait("done")
    assert not running(pid)
    worker.close()
    with pytest.raises(OSError):  # noqa: PT011 — closed here, or ended by itself
        forked(template)


def test_forks_end_with_the_process_that_holds_the_template(template, tmp_path):
    program = """
        import sys, time
        from lockstep.processes.end_with_parent import end_with_parent
        from lockstep.processes.template import Template
        from lockstep.processes.watched_worker import Watched

        end_with_parent()
        template = Template(["obeys"])
        worker = Watched("obeys", [], 30.0, template=template)
        print(worker.wait("ready")["pid"], flush=True)
        time.sleep(1000)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with (tmp_path / "said").open("w+b") as said:
        holder = start(command, stdout=said)
        while not (text := (tmp_path / "said").read_text()).endswith("\n"):
            time.sleep(0.01)
    assert running(int(text))
    reap(holder, 0.0)
    until = time.monotonic() + 10
    while running(int(text)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not running(int(text))


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def running(pid):
    """Return whether a process runs, shortly after it should have ended."""
    until = time.monotonic() + 1.0
    while state_of(pid) not in ("", "Z") and time.monotonic() < until:
        time.sleep(0.01)
    return state_of(pid) not in ("", "Z")
