"""Try to get out of a sandbox: run inside, print what became of each attempt as JSON: "refused: …", or what it did.

Arguments: a JSON object with the judge's process id, a file and a folder that belong to the judge, a port on which the
judge listens, and the paths of its UNIX socket.
"""

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
JUDGE = json.loads(sys.argv[1])
FILE, FOLDER = Path(JUDGE["file"]), Path(JUDGE["folder"])


def called(result):
    """Raise the error of a C function that returned -1."""
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return f"returned {result}"


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(2.0)
        connection.connect(address)
        return "connected"


def signal_by_file(owner):
    """F_SETOWN with F_SETSIG: the kernel sends SIGKILL to the owner of a pipe that can be read."""
    reads, writes = os.pipe()
    fcntl.fcntl(reads, fcntl.F_SETOWN, owner)
    fcntl.fcntl(reads, 10, signal.SIGKILL)
    fcntl.fcntl(reads, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writes, b"x")
    return "sent"


def fork_bomb():
    """Fork until it fails, at most 20,000 times; all end with this process."""
    for _ in range(20_000):
        if os.fork() == 0:
            signal.pause()
    return "forked 20,000 processes"


def fill(path):
    block = bytes(1 << 20)
    with Path(path).open("wb", 0) as file:
        for _ in range(6 << 10):
            file.write(block)
    return "wrote 6 GiB"


def allocate():
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    return f"allocated {len(bytearray(size))} bytes"


def handle():
    """Open the root of the host by a handle (the escape of Docker in 2014)."""
    raw = (ctypes.c_ubyte * 16)(8, 0, 0, 0, 1, 0, 0, 0, 2)
    return called(LIBC.open_by_handle_at(os.open("/usr", os.O_RDONLY), ctypes.byref(raw), os.O_RDONLY))


def read_memory():
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 8)
    return called(LIBC.process_vm_readv(JUDGE["pid"], ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0))


def secret():
    """Look for the judge's secret in the environment of every process."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if b"LOCKSTEP_TEST_SECRET" in path.read_bytes():
                return f"read {path}"
        except OSError:
            pass
    raise PermissionError("not found")


ESCAPES = {
    # of observe.md
    "rewrites the problem": lambda: FILE.write_text("changed"),
    "chmod": lambda: FILE.chmod(0o777),
    "utime": lambda: os.utime(FILE, (0, 0)),
    "chown": lambda: os.chown(FILE, 65534, 65534),
    "setxattr": lambda: os.setxattr(FILE, "user.mine", b"x"),
    "new file beside the problem": lambda: (FOLDER / "new").touch(),
    "removes the problem": FILE.unlink,
    "TCP": lambda: connect(socket.AF_INET, ("127.0.0.1", JUDGE["port"])),
    "TCP to the world": lambda: connect(socket.AF_INET, ("1.1.1.1", 53)),
    "UNIX socket": lambda: connect(socket.AF_UNIX, JUDGE["unix"]),
    "abstract UNIX socket": lambda: connect(socket.AF_UNIX, "\0" + JUDGE["abstract"]),
    "VSOCK": lambda: connect(40, (2, 1024)),
    "kills the judge by a file": lambda: signal_by_file(JUDGE["pid"]),
    "kills the judge": lambda: os.kill(JUDGE["pid"], signal.SIGKILL),
    "reads the judge's environment": lambda: Path(f"/proc/{JUDGE['pid']}/environ").read_bytes(),
    "reads every environment": secret,
    "reads passwords": lambda: Path("/etc/shadow").read_text(),
    "reads another file of the judge": lambda: (FOLDER / "secret").read_text(),
    "all memory": allocate,
    "the disk": lambda: fill("/tmp/big"),
    "the shared memory": lambda: fill("/dev/shm/big"),
    # ten more, and then some
    "ptrace": lambda: called(LIBC.ptrace(16, JUDGE["pid"], 0, 0)),
    "reads the judge's memory": read_memory,
    "pidfd of the judge": lambda: called(LIBC.syscall(434, JUDGE["pid"], 0)),
    "is root": lambda: os.setuid(0),
    "mounts": lambda: called(LIBC.mount(b"none", b"/usr", b"tmpfs", 0, None)),
    "remounts writable": lambda: called(LIBC.mount(b"none", b"/usr", None, 32 | 4096, None)),
    "leaves its root": lambda: os.chroot("/usr"),
    "enters the namespaces of 1": lambda: called(LIBC.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)),
    "opens by handle": handle,
    "core pattern": lambda: Path("/proc/sys/kernel/core_pattern").write_text("|/tmp/x"),
    "drops the caches": lambda: Path("/proc/sys/vm/drop_caches").write_text("3"),
    "processor's clock": lambda: Path("/sys/devices/system/cpu/cpu0/online").write_text("0"),
    "sets the clock": lambda: called(LIBC.clock_settime(0, ctypes.byref((ctypes.c_long * 2)(0, 0)))),
    "higher priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -10),
    "real-time priority": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)),
    "kernel's memory": lambda: Path("/dev/mem").read_bytes(),
    "kernel's log": lambda: Path("/dev/kmsg").write_text("hello"),
    "makes a device": lambda: os.mknod("/tmp/disk", 0o600 | 0o060000, os.makedev(8, 0)),
    "bpf": lambda: called(LIBC.syscall(321, 0, 0, 0)),
    "performance counters": lambda: called(LIBC.syscall(298, (ctypes.c_ubyte * 128)(), -1, 0, -1, 0)),
    "keys": lambda: called(LIBC.syscall(250, 0, -5, 1)),
    "io_uring": lambda: called(LIBC.syscall(425, 8, ctypes.byref((ctypes.c_ubyte * 120)()))),
    "raises its own limit": lambda: resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)),
    "host name": lambda: socket.sethostname("mine"),
    "reboots": lambda: called(LIBC.reboot(0x01234567)),
    "swap": lambda: called(LIBC.swapoff(b"/dev/zram0")),
    "runs a daemon": lambda: subprocess.Popen(["sleep", "1000"], start_new_session=True) and "runs",
    "a bomb of processes": fork_bomb,
}


def main():
    """Try each escape and print what became of it."""
    from lockstep.referee.sandbox import limit_resources

    limit_resources()
    told = {}
    for name, attempt in ESCAPES.items():
        try:
            told[name] = str(attempt())
        except (OSError, MemoryError, ValueError, OverflowError) as error:
            told[name] = f"refused: {type(error).__name__}: {error}"
    os.write(1, json.dumps(told).encode())


if __name__ == "__main__":
    main()
