"""Workers are forks of one process that has imported torch: alone, as if started anew, and watched like any other.

Modules without content stand for torch and Triton, whose imports are most of what a process takes.
"""

import os
import textwrap
import time
from pathlib import Path

import pytest

from lockstep.processes.watched_worker import Watched, WorkerDied

#: Executes what it is asked to; answers with the value of ``answer``.
TOY = """
    import os, sys
    from lockstep.processes.worker import WorkerProcess

    process = WorkerProcess()
    process.emit("ready", parent=os.getppid(), warm="torch" in sys.modules)
    for request in process.requests():
        answer = None
        exec(request["do"])
        process.emit("done", value=answer)
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")  # one for all tests: it is in a variable that is read early
    (folder / "toy.py").write_text(textwrap.dedent(TOY))
    (folder / "under_test.py").write_text("value = 1\n")
    for name in ("torch", "triton"):
        (folder / f"{name}.py").touch()
    return folder


@pytest.fixture
def start(modules, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(modules))
    started = []

    def start(**options):
        started.append(Watched("toy", [], 60.0, warm=True, **options))
        return started[-1], started[-1].started()

    yield start
    for worker in started:
        worker.close(patience_s=0.0)


def _do(worker, does):
    worker.ask({"do": does})
    return worker.wait("done")["value"]


def test_each_worker_starts_anew(start, tmp_path, monkeypatch):
    first, ready = start()
    assert ready["warm"]
    assert ready["parent"] == first.pid
    _do(first, "import under_test; under_test.value = 2; os.chdir('/'); print('loud')")
    first.close()

    monkeypatch.setenv("LOCKSTEP_TOLD", "it")
    monkeypatch.chdir(tmp_path)
    second, ready = start()
    assert ready["parent"] == first.pid
    assert _do(second, "import under_test; answer = under_test.value") == 1
    assert _do(second, "answer = os.getcwd(), os.environ['LOCKSTEP_TOLD']") == [str(tmp_path), "it"]
    assert _do(second, "answer = os.fstat(1).st_size") == 0


def test_code_that_asks_a_person_gets_no_answer_and_takes_no_request(start):
    """kornia asks whether to install a library, and waited for hours."""
    worker, _ = start()
    asks = ["input()", "os.read(0, 1)[0]", "__import__('subprocess').check_output('read -r it', shell=True)"]
    for ask in asks:
        assert _do(worker, f"try: {ask}\nexcept Exception: answer = 'no answer'") == "no answer"
    assert _do(worker, "answer = 'served'") == "served"


def test_variables_that_torch_may_have_read_are_never_stale(start, monkeypatch):
    first, ready = start()
    first.close()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    second, other = start()
    assert other["parent"] != ready["parent"]
    assert _do(second, "answer = os.environ['OMP_NUM_THREADS']") == "7"


@pytest.mark.parametrize(
    ("does", "how"),
    [
        ("os.kill(os.getpid(), 11)", "killed by SIGSEGV on a request"),
        ("sys.exit('no room')", "ended with exit status 1 on a request: no room"),
        ("sys.exit(0)", "ended with exit status 0 on a request"),
    ],
)
def test_the_end_of_a_worker_is_told_and_its_process_is_not_used_again(start, does, how):
    worker, ready = start()
    with pytest.raises(WorkerDied) as died:
        _do(worker, does)
    assert died.value.how == how
    worker.close()
    _, other = start()
    assert other["parent"] != ready["parent"]


def test_a_process_that_died_while_it_waited_is_not_used(start):
    worker, ready = start()
    worker.close()
    os.kill(worker.pid, 9)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    _, other = start()
    assert other["parent"] != ready["parent"]


def test_what_a_worker_leaves_behind_ends_with_it(start):
    worker, _ = start()
    left = _do(worker, "import subprocess; answer = subprocess.Popen(['sleep', '1000']).pid")
    worker.close()
    deadline = time.monotonic() + 60
    while _runs(left) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(left)


def _runs(pid):
    try:
        return "sleep" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def test_a_worker_that_is_not_done_is_killed(start):
    worker, ready = start()
    worker.ask({"do": "import time; time.sleep(1000)"})
    worker.close(patience_s=1000.0)
    _, other = start()
    assert other["parent"] != ready["parent"]


def test_packages_of_another_toolchain_are_imported_anew(start, tmp_path):
    (tmp_path / "torch.py").write_text("")
    worker = Watched("toy", [], 60.0, warm=True, folders=[tmp_path])
    assert not worker.started()["warm"]
    worker.close()


def test_at_most_so_many_processes_wait(start, monkeypatch):
    monkeypatch.setattr("lockstep.processes.started_process.MOST_IDLE", 2)
    workers = [start() for _ in range(3)]
    for worker, _ in workers:
        worker.close()
    deadline = time.monotonic() + 60
    while sum(map(_is_child, (ready["parent"] for _, ready in workers))) > 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [_is_child(ready["parent"]) for _, ready in workers] == [False, True, True]


def _is_child(pid):
    try:
        return f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_libraries_that_the_configuration_names_are_imported_once(start, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_PRELOAD", "colorsys,no_such_module")
    loaded = "import sys; answer = 'colorsys' in sys.modules"
    monkeypatch.setenv("OTHER", "so that a new process starts")
    first, _ = start()
    assert _do(first, loaded)
    first.close()
    second, _ = start()
    assert _do(second, loaded)
    assert second.pid == first.pid
