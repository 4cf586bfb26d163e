"""Tell whether a connection from this machine belongs to the account that runs the server."""

from __future__ import annotations

import ipaddress
import os
import struct
from pathlib import Path

#: Linux lists the connections of this machine here, each with the account of its process.
_TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}


def is_own(address: str | None, port: str | int | None) -> bool:
    """Return whether the client at an address and port is a process of this account on this machine.

    ``False`` if this is unknown: on other systems than Linux, and for a client on another machine.
    """
    try:
        client, number = ipaddress.ip_address(address or ""), int(port or 0)
    except ValueError:
        return False
    if not client.is_loopback or not 0 < number < 2**16:
        return False
    mapped = ipaddress.ip_address(f"::ffff:{client}") if client.version == 4 else client
    return any(_owner(version, place, number) == os.getuid() for version, place in ((4, client), (6, mapped)))


def _owner(version: int, client: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> int | None:
    """Return the account of the process that holds an end of a connection; ``None`` if the table lacks the end."""
    packed = client.packed
    if len(packed) != (4 if version == 4 else 16):
        return None
    # The kernel prints each four bytes as a number of this machine.
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    end = "".join(f"{word:08X}" for word in words) + f":{port:04X}"
    try:
        lines = _TABLES[version].read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return None
    return next((int(fields[7]) for fields in map(str.split, lines) if fields[1] == end), None)
