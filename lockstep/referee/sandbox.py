"""Put the process of a candidate into a sandbox of bubblewrap (https://github.com/containers/bubblewrap).

Inside, the process has namespaces of its own (user, network, processes, IPC, host name), sees the files that it needs
and nothing else, read-only, and runs as an unprivileged user without capabilities. If the judge is root, bubblewrap
needs no user namespace: setpriv(1) makes the process the user ``NOBODY``, who owns nothing.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import resource
import shutil
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from lockstep.processes.end_with_parent import PARENT, run

#: The folder from which Lockstep is imported.
HOME = Path(__file__).parents[2]

#: User and group inside the sandbox: ``nobody``.
NOBODY = "65534"

#: What programs, libraries and drivers are read from.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys", "/opt")
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

#: By machine: AUDIT_ARCH of linux/audit.h, and the numbers of socket(2), io_uring_setup(2) and keyctl(2). No namespace
#: separates the sockets of VSOCK and keyrings, and io_uring works beside the filter.
_CALLS = {"x86_64": (0xC000003E, 41, 425, 250), "aarch64": (0xC00000B7, 198, 425, 219)}
_AF_VSOCK = 40

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
    fd = filter_fd()
    tried = run([*command([], fd), "true"], text=True, pass_fds=(fd,))
    os.close(fd)
    reason = tried.stderr.strip().splitlines()
    return f"bubblewrap does not work here: {reason[-1] if reason else tried.returncode}" if tried.returncode else ""


def filter_fd() -> int:
    """Return a file with a seccomp filter in classic BPF (linux/filter.h) for bubblewrap; the caller closes it.

    The filter refuses sockets of VSOCK, io_uring and keyrings. On an unknown machine it refuses nothing.
    """
    load, equal, least, answer = 0x20, 0x15, 0x35, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
    steps = [(answer, 0, 0, allow)]
    if known := _CALLS.get(platform.machine()):
        audit, socket, uring, keys = known
        steps = [
            (load, 0, 0, 4),
            (equal, 1, 0, audit),
            (answer, 0, 0, kill),
            (load, 0, 0, 0),
            (least, 6, 0, 0x40000000),  # the same calls in the x32 ABI
            (equal, 5, 0, uring),
            (equal, 4, 0, keys),
            (equal, 0, 2, socket),
            (load, 0, 0, 16),
            (equal, 1, 0, _AF_VSOCK),
            (answer, 0, 0, allow),
            (answer, 0, 0, refuse),
        ]
    fd = os.memfd_create("lockstep-filter", 0)
    os.write(fd, b"".join(struct.pack("=HBBI", *step) for step in steps))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def variables() -> dict[str, str]:
    """Return the environment of a sandbox, without secrets. bubblewrap itself gets no other: its memory is readable."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
    own = {"HOME": "/tmp", "TMPDIR": "/tmp", "TRITON_CACHE_DIR": "/tmp/triton"}
    return {**kept, **own, "PYTHONPATH": os.pathsep.join(_packages())}


def command(readable: Iterable[Path], filter_fd: int) -> list[str]:
    """Return the command line that runs the program after it inside a sandbox.

    Args:
        readable: files and folders that the program may read besides the system, Python and Lockstep.
        filter_fd: the file of ``filter_fd``, which bubblewrap must inherit.
    """
    words = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--chdir", "/tmp", "--dev", "/dev", "--proc", "/proc"]
    words += ["--seccomp", str(filter_fd), "--setenv", PARENT, "1"]  # the parent's id inside
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
    return [*dict.fromkeys([sys.prefix, sys.base_prefix, *_packages()]), str(HOME / "lockstep")]


def _packages() -> list[str]:
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages") and Path(path).is_dir()]


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
