"""A process ends with its parent by any way of dying, and takes what it started with it."""

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from lockstep.processes import end_with_parent as processes
from lockstep.processes.end_with_parent import reap, run, start

#: A child that says its number, starts a sleeping child of its own in the same group, and sleeps.
CHILD = """
    import os, subprocess, sys, time
    from lockstep.processes.end_with_parent import end_with_parent
    end_with_parent()
    grandchild = subprocess.Popen(["sleep", "1000"])
    print(os.getpid(), grandchild.pid, flush=True)
    time.sleep(1000)
"""

#: What a parent does once it has imported everything; it prints the numbers of the processes that must not survive it.
PARENTS = {
    "start": """
        process = start([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
        print(process.stdout.readline().decode(), end="", flush=True)
        time.sleep(1000)
    """,
    "a started program that is not Python's": """
        process = start(["sleep", "1000"])
        time.sleep(0.3)  # setpriv becomes it
        print(process.pid, flush=True)
        time.sleep(1000)
    """,
    "a run in a thread": """
        import threading
        threading.Thread(target=run, args=([sys.executable, "-c", CHILD],), kwargs={"stdout": None}).start()
        time.sleep(1000)
    """,
    "a forked pool": """
        with pool(2) as workers:
            print(*set(workers.map(number, range(8))), flush=True)
            time.sleep(1000)
    """,
    "a pool of a child": """
        if os.fork() == 0:
            end_with_parent()
            with pool(2) as workers:
                print(os.getpid(), *set(workers.map(number, range(8))), flush=True)
                time.sleep(1000)
        time.sleep(1000)
    """,
}

HEAD = """
import os, subprocess, sys, time
from lockstep.processes.end_with_parent import end_with_parent, pool, run, start

def number(_):
    time.sleep(0.05)
    return os.getpid()

"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(pids, seconds=60.0) -> bool:
    until = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, pids))


def parent_of(tmp_path, text: str) -> subprocess.Popen:
    program = tmp_path / "parent.py"
    program.write_text(f"{HEAD}CHILD = {textwrap.dedent(CHILD)!r}\n{textwrap.dedent(text)}")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, env=environment, start_new_session=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
@pytest.mark.parametrize("text", PARENTS.values(), ids=PARENTS)
def test_nothing_outlives_a_parent_that_is_killed(tmp_path, text, how):
    if how != signal.SIGKILL and "forked" not in text and "start(" not in text:
        pytest.skip("one way of dying is enough here")
    parent = parent_of(tmp_path, text)
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert pids
    assert all(map(alive, pids))
    os.kill(parent.pid, how)
    parent.wait()
    try:
        assert gone(pids)
    finally:
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)
        parent.stdout.close()


def test_a_process_that_a_thread_started_outlives_the_thread(tmp_path):
    """The kernel sends the signal at the end of the thread that forked."""
    started = []
    program = textwrap.dedent(CHILD)

    def begin():
        started.append(start([sys.executable, "-c", program], stdout=subprocess.PIPE))
        started[0].stdout.readline()

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    time.sleep(0.3)
    [process] = started
    assert process.poll() is None
    reap(process, 0.0)
    process.stdout.close()


def test_a_child_whose_parent_has_ended_before_it_asks_ends(tmp_path):
    program = (
        "import time; from lockstep.processes.end_with_parent import end_with_parent; end_with_parent(); print('on'); "
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, processes.PARENT: "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_a_child_ends_with_its_parent_where_the_kernel_has_no_signal_for_it(tmp_path):
    text = """
        import ctypes
        class Nothing: pass
        if os.fork() == 0:
            ctypes.CDLL = lambda *_: Nothing()
            end_with_parent()
            print(os.getpid(), flush=True)
            time.sleep(1000)
        time.sleep(1000)
    """
    parent = parent_of(tmp_path, text)
    pids = [int(parent.stdout.readline())]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pids)


def test_a_time_out_kills_the_whole_group(tmp_path):
    said = tmp_path / "said"
    program = textwrap.dedent(CHILD)
    with said.open("w") as file, pytest.raises(subprocess.TimeoutExpired):
        run([sys.executable, "-c", program], stdout=file, timeout=1.5)
    pids = [int(word) for word in said.read_text().split()]
    assert len(pids) == 2
    assert gone(pids)


@pytest.mark.parametrize("timeout", [None, 0.5])
def test_what_a_process_leaves_in_its_group_is_killed_with_it(timeout):
    program = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid, flush=True)"
    process = start([sys.executable, "-c", program], stdout=subprocess.PIPE)
    grandchild = int(process.stdout.readline())
    assert reap(process, timeout if timeout is None else 30.0) == 0
    assert gone([grandchild])
    process.stdout.close()


def test_run_answers_like_subprocess():
    done = run(["git", "hash-object", "--stdin"], given="text", text=True)
    assert (done.returncode, done.stdout) == (0, "f3a34851d44d6b97c90fbb99dd3d18c261b9a237\n")
    assert run(["git", "no-such-verb"]).returncode == 1
    with pytest.raises(FileNotFoundError):
        run(["no-such-program"])
    assert run([sys.executable, "-c", "import sys; sys.exit(3)"]).returncode == 3


def test_a_leader_that_is_killed_takes_its_group_with_it():
    """Also while its own parent is busy and reaps nobody."""
    process = start([sys.executable, "-c", textwrap.dedent(CHILD)], stdout=subprocess.PIPE)
    pids = [int(word) for word in process.stdout.readline().split()]
    os.kill(pids[0], signal.SIGKILL)
    assert gone(pids)
    reap(process)
    process.stdout.close()


def test_a_guard_keeps_no_pipe_open():
    program = (
        "from lockstep.processes.end_with_parent import end_with_parent; end_with_parent(); "
        "import os, time; os.close(1); time.sleep(1000)"
    )
    process = start([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout.read() == b""
    assert process.poll() is None
    reap(process, 0.0)
    process.stdout.close()


#: What starts processes, by module: a child of any other would outlive its parent. A reset of the clocks is meant to.
STARTS = re.compile(
    r"subprocess\.(?:run|Popen|call|check_\w+)\(|ProcessPoolExecutor\(|os\.(?:fork|spawn|posix_spawn)\w*\("
)
MAY_START = {
    "lockstep/processes/end_with_parent.py",
    "lockstep/processes/warm_process.py",
    "lockstep/gpu/nvml.py",
}


def test_everything_starts_processes_in_the_same_way():
    root = Path(__file__).parents[2]
    found = {
        str(path.relative_to(root))
        for package in ("lockstep", "dashboard")
        for path in (root / package).rglob("*.py")
        if STARTS.search(path.read_text())
    }
    assert found == MAY_START


class Ended:
    """Removes a file when it is collected, as a connection ends its threads."""

    def __init__(self, path: Path) -> None:
        self.path, self.itself = path, self

    def __del__(self) -> None:
        self.path.unlink(missing_ok=True)


def collected(_: int) -> None:
    gc.collect()


def test_a_forked_process_leaves_its_parents_garbage_alone(tmp_path):
    path = tmp_path / "connection"
    path.touch()
    gc.disable()
    try:
        Ended(path)
        with processes.pool(1) as workers:
            assert list(workers.map(collected, [0])) == [None]
        assert path.exists()
    finally:
        gc.enable()
        gc.collect()
    assert not path.exists()
