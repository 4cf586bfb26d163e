"""The real sandbox: whatever a candidate tries, nothing outside changes, nothing is read, and nothing stays."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockstep.processes.stopping import descendants
from lockstep.referee import sandbox

needs_sandbox = pytest.mark.skipif(bool(sandbox.missing()), reason=sandbox.missing())

#: What succeeds inside and is harmless: it ends with the sandbox.
HARMLESS = {"runs a daemon": "runs"}


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """What became of each escape, the state outside, and the processes that were left."""
    if sandbox.missing():
        pytest.skip(sandbox.missing())
    folder = tmp_path_factory.mktemp("judge")
    problem = folder / "problem.py"
    problem.write_text("text")
    (folder / "secret").write_text("text")
    before = problem.stat()
    os.environ["LOCKSTEP_TEST_SECRET"] = "1"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "socket"))
        unix.listen()
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(f"\0lockstep-{os.getpid()}")
            abstract.listen()
            judge = {
                "pid": os.getpid(),
                "file": str(problem),
                "folder": str(folder),
                "port": tcp.getsockname()[1],
                "unix": str(folder / "socket"),
                "abstract": f"lockstep-{os.getpid()}",
            }
            escapes = Path(__file__).with_name("escapes.py")
            fd = sandbox.filter_fd()
            process = subprocess.Popen(
                [*sandbox.command([problem, escapes], fd), sys.executable, str(escapes), json.dumps(judge)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(fd,),
                env=sandbox.variables() | {"PYTHONPATH": str(sandbox.HOME)},
            )
            inside: set[int] = set()
            while process.poll() is None and len(inside) < 10_000:
                inside |= set(descendants(process.pid))
                time.sleep(0.1)
            said, error = process.communicate(timeout=120)
            os.close(fd)
    del os.environ["LOCKSTEP_TEST_SECRET"]
    assert said, error.decode()
    return (
        json.loads(said),
        (before, problem.stat(), problem.read_text(), sorted(path.name for path in folder.iterdir())),
        inside,
    )


@needs_sandbox
def test_every_escape_is_refused(tried):
    told, _, _ = tried
    done = {name: became for name, became in told.items() if not became.startswith("refused")}
    assert done == HARMLESS
    assert len(told) > 40


@needs_sandbox
def test_nothing_outside_has_changed(tried):
    _, (before, after, text, names), _ = tried
    assert (before, text, names) == (after, "text", ["problem.py", "secret", "socket"])


@needs_sandbox
def test_nothing_stays_behind(tried):
    _, _, inside = tried
    assert len(inside) > 100  # the bomb of processes and the daemon among them
    deadline = (
        time.monotonic() + 240
    )  # what stays behind stays for good; the end of a bomb takes long on a busy machine
    while any(Path(f"/proc/{one}").exists() and "Z" not in _state(one) for one in inside):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _state(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@needs_sandbox
def test_a_candidate_is_nobody_without_capabilities_and_alone():
    fd = sandbox.filter_fd()
    look = "import os; print(os.getuid(), open('/proc/self/status').read(), os.listdir('/proc'), sorted(os.environ))"
    done = subprocess.run(
        [*sandbox.command([], fd), sys.executable, "-c", look],
        capture_output=True,
        text=True,
        pass_fds=(fd,),
        env=sandbox.variables(),
        check=True,
    )
    os.close(fd)
    assert done.stdout.startswith("65534 ")
    for name in ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb"):
        assert f"{name}:\t{0:016x}" in done.stdout or name == "CapBnd", name
    assert "NoNewPrivs:\t1" in done.stdout
    assert "Seccomp:\t2" in done.stdout


def test_a_machine_without_bubblewrap_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    sandbox.missing.cache_clear()
    try:
        assert sandbox.missing() == "bubblewrap is not installed (make system-deps)"
    finally:
        sandbox.missing.cache_clear()


@needs_sandbox
def test_a_folder_of_packages_that_does_not_exist_is_left_out(monkeypatch):
    monkeypatch.syspath_prepend("/opt/absent/site-packages")
    sandbox.missing.cache_clear()
    assert sandbox.missing() == ""
