"""Restrict this process before it imports code under test: no network, no writes, no access to other processes.

Landlock (kernel 5.13 and newer) refuses writes outside a scratch folder and access to the memory of other processes.
Seccomp refuses system calls. Both need packages of the extra ``isolated``; a missing package is reported.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

#: Paths that CUDA and Python write: devices, and files of this process.
_WRITABLE = ("/dev/null", "/dev/nvidia*", "/dev/nvidia-caps/*", "/proc/self")

#: System calls that are refused with any arguments: memory and signals of other processes, and ways around the rules.
_REFUSED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "tkill"),
    *("rt_sigqueueinfo", "rt_tgsigqueueinfo", "io_uring_setup", "unshare", "setns", "mount", "bpf"),
)

#: System calls that are ignored but answered as successful. A child in another session or group could not be stopped
#: with its parent.
_IGNORED = ("setsid", "setpgid")


def restrict(scratch: Path) -> list[str]:
    """Forbid this process and its children for good to write files, use the network or reach other processes.

    Args:
        scratch: the only folder that stays writable.

    Returns:
        Restrictions that are not enforced, with the reason; empty if all are enforced.
    """
    return [reason for reason in (_landlock(scratch), _seccomp()) if reason]


def _landlock(scratch: Path) -> str:
    try:
        from landlock import FSAccess, LandlockError, Ruleset, landlock_abi_version  # an optional extra
    except ImportError:
        return "writes are not refused (landlock is not installed)"
    try:
        writing = FSAccess.WRITE_FILE | FSAccess.REMOVE_DIR | FSAccess.REMOVE_FILE | FSAccess.MAKE_REG
        writing |= FSAccess.MAKE_DIR | FSAccess.MAKE_SYM | FSAccess.MAKE_SOCK | FSAccess.MAKE_FIFO
        writing |= FSAccess.MAKE_CHAR | FSAccess.MAKE_BLOCK
        if landlock_abi_version() >= 2:
            # Landlock refuses a rename between folders unless a rule allows it; Triton's cache needs such renames.
            writing |= FSAccess.REFER
        if landlock_abi_version() >= 3:
            writing |= FSAccess.TRUNCATE
        rules = Ruleset(restrict_rules=writing)
        rules.allow(str(scratch), rules=writing)
        for pattern in _WRITABLE:
            for path in Path("/").glob(pattern.lstrip("/")):
                inside = writing if path.is_dir() else writing & FSAccess.all_file()
                rules.allow(str(path), rules=inside)
        rules.apply()
    except (LandlockError, OSError) as error:
        return f"writes are not refused ({error})"
    return ""


def _seccomp() -> str:
    try:
        from pyseccomp import ALLOW, EQ, ERRNO, NE, Arg, SyscallFilter  # an optional extra
    except (ImportError, RuntimeError):  # RuntimeError: no libseccomp
        return "network and signals are not refused (pyseccomp or libseccomp is not installed)"
    try:
        rules = SyscallFilter(ALLOW)
        refuse = ERRNO(errno.EPERM)
        for name in _REFUSED:
            rules.add_rule(refuse, name)
        for name in _IGNORED:
            rules.add_rule(ERRNO(0), name)
        for family in (2, 10, 17):  # AF_INET, AF_INET6, AF_PACKET
            rules.add_rule(refuse, "socket", Arg(0, EQ, family))
        for name in ("kill", "tgkill"):
            rules.add_rule(refuse, name, Arg(0, NE, os.getpid()))
        rules.load()
    except OSError as error:
        return f"network and signals are not refused ({error})"
    return ""
