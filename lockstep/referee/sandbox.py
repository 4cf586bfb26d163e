"""Put the process of a candidate into a sandbox of bubblewrap (https://github.com/containers/bubblewrap).

Inside, the process has namespaces of its own (user, network, processes, IPC, host name), sees the files that it needs
and nothing else, read-only, and runs as an unprivileged user without capabilities. If the judge is root, bubblewrap
needs no user namespace: setpriv(1) makes the process the user ``NOBODY``, who owns nothing.
"""

from __future__ import annotations

import functools
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from lockstep.processes.end_with_parent import PARENT

#: The folder from which Lockstep is imported.
HOME = Path(__file__).parents[2]

#: User and group inside the sandbox: ``nobody``.
NOBODY = "65534"

#: What programs, libraries and drivers are read from.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys", "/opt/nvidia")
_SETTINGS = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "localtime",
    "nsswitch.conf",
    "passwd",
    "group",
)

#: Variables that reach the process, by the beginnings of their names: none holds a secret.
_VARIABLES = (
    "CUDA_",
    "LANG",
    "LC_",
    "LD_LIBRARY_PATH",
    "MKL_",
    "NVIDIA_VISIBLE",
    "OMP_",
    "PATH",
    "PYTORCH_",
    "TRITON_",
)

#: Maximum bytes of the files in the private ``/tmp`` and ``/dev/shm``, of one file, and numbers of processes and files.
_TMP_BYTES, _FILE_BYTES, _PROCESSES, _FILES = 2 << 30, 4 << 30, 4096, 4096


def most_memory() -> int:
    """Return the bytes of memory that the processes of one sandbox may use: half of the machine's."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


@functools.cache
def missing() -> str:
    """Return why this machine has no sandbox, or ""."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (make system-deps)"
    tried = subprocess.run([*command([]), "true"], capture_output=True, text=True, check=False)
    reason = tried.stderr.strip().splitlines()
    return f"bubblewrap does not work here: {reason[-1] if reason else tried.returncode}" if tried.returncode else ""


def variables() -> dict[str, str]:
    """Return the environment of a sandbox, without secrets. bubblewrap itself gets no other: its memory is readable."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
    return {**kept, "HOME": "/tmp", "TMPDIR": "/tmp"}


def command(readable: Iterable[Path]) -> list[str]:
    """Return the command line that runs the program after it inside a sandbox.

    Args:
        readable: files and folders that the program may read besides the system, Python and Lockstep.
    """
    words = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--chdir", "/tmp", "--dev", "/dev", "--proc", "/proc"]
    words += ["--setenv", PARENT, "1"]  # the parent's id inside
    for folder in ("/tmp", "/dev/shm"):
        words += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", folder]
    for device in sorted(Path("/dev").glob("nvidia*")):
        words += ["--dev-bind", str(device), str(device)]
    seen: set[Path] = set()
    for path in (*_SYSTEM, *(f"/etc/{name}" for name in _SETTINGS), *_python(), *map(os.path.abspath, readable)):
        for parent in [folder for folder in reversed(Path(path).parents[:-1]) if folder not in seen]:
            seen.add(parent)
            words += ["--perms", "0755", "--dir", str(parent)]  # bubblewrap's own would be closed to other users
        words += ["--ro-bind-try", path, path]
    if os.geteuid() == 0:
        become = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
        return [*words, "setpriv", *become, "--"]
    return [*words, "--unshare-user", "--disable-userns", "--uid", NOBODY, "--gid", NOBODY, "--"]


def _python() -> Sequence[str]:
    """Return the folders of Python, its packages and Lockstep; not the working folder, which Python may search too."""
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [*dict.fromkeys([sys.prefix, sys.base_prefix, *packages]), str(HOME / "lockstep")]


def limit_resources() -> None:
    """Limit this process and its children for good: memory, files, processes, no core file."""
    limits = {
        resource.RLIMIT_DATA: most_memory(),
        resource.RLIMIT_FSIZE: _FILE_BYTES,
        resource.RLIMIT_NPROC: _PROCESSES,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))
