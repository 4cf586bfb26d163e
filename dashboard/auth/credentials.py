"""Identify the sender of a request by a proxy that knows a secret, or on a machine alone by the connection.

Nobody else can change an alert.
"""

from __future__ import annotations

import argparse
import getpass
import hmac
import ipaddress
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.processes.trouble import reason_of

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


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Minimum length of a proxy's secret, because shorter ones can be guessed.
LEAST_SECRET = 16

#: The header in which a proxy states ``SECRET NAME``. One header holds both: a proxy that forgets to set it forwards
#: what its client sent, and the client does not know the secret.
USER_HEADER = "X-Lockstep-User"

#: What to do where ``--proxy`` alone is expected to name people.
NAME_PEOPLE = "name people with --proxy-secret: docs/operating.md"

#: Headers that say that a request was forwarded.
FORWARDED = ("X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Forwarded", "Via")

_LONGEST_NAME = 80


class AccessError(ValueError):
    """An option or file that says who may sign in is wrong. The message names it and says what to do."""


@dataclass(frozen=True)
class Access:
    """How people are identified. By default nobody is identified, and the dashboard is read-only.

    Attributes:
        proxies: networks whose ``X-Forwarded-For`` and ``X-Request-Id`` are trusted. They alone name nobody.
        secret: what a proxy states in ``USER_HEADER`` before the name of a person; "" trusts no such header.
        alone: the name of the person who runs the server, if nobody but this machine reaches it. Requests of this
            account's own processes come from this person.
        hosts: host names for which the server answers, () for any. They prevent DNS rebinding: otherwise another site
            could point its own name at this server, and its pages could read with the reader's access.
    """

    proxies: tuple[Network, ...] = ()
    secret: str = ""
    hosts: tuple[str, ...] = ()
    alone: str = ""

    @property
    def writable(self) -> bool:
        """Whether a proxy or a connection can identify a person, who may then change alerts."""
        return bool(self.secret or self.alone)

    def own(self, address: str | None, port: str | int | None, headers: Mapping[str, str]) -> str:
        """Return the name of the person who runs the server, if the request is from a process of this account.

        A proxy of this account forwards requests of others, and says so in a header.
        """
        if not self.alone or any(name in headers for name in FORWARDED):
            return ""
        return self.alone if is_own(address, port) else ""

    def forwarded(self, address: str | None, headers: Mapping[str, str]) -> str:
        """Return the person's name that a proxy stated together with the secret; "" from any other address.

        ``headers``: the headers of the request, looked up regardless of case.
        """
        stated, _, name = headers.get(USER_HEADER, "").partition(" ")
        known = bool(self.secret) and hmac.compare_digest(stated.encode(), self.secret.encode())
        return name.strip()[:_LONGEST_NAME] if known and self.is_proxy(address) else ""

    def is_proxy(self, address: str | None) -> bool:
        """Return whether an address lies in the networks of the trusted proxies."""
        try:
            client = ipaddress.ip_address(address or "")
        except ValueError:
            return False
        return any(client in network for network in self.proxies)

    def client(self, address: str | None, headers: Mapping[str, str]) -> str:
        """Return the address at which a request began: the last address in ``X-Forwarded-For`` that is not a proxy's.

        Args:
            address: the address of the connection; unless it is a proxy's, the header is ignored.
            headers: the headers of the request, looked up regardless of case.
        """
        client = address or "unknown"
        # Each proxy appends the address of its client. Earlier addresses may be forged.
        for hop in reversed(headers.get("X-Forwarded-For", "").split(",")):
            if not self.is_proxy(client):
                break
            try:
                client = str(ipaddress.ip_address(hop.strip()))
            except ValueError:
                break
        return client


def read_networks(texts: list[str]) -> tuple[Network, ...]:
    """Parse addresses and networks (``127.0.0.1``, ``10.1.0.0/16``).

    Raise ``AccessError`` if a text is neither an address nor a network.
    """
    try:
        return tuple(ipaddress.ip_network(text, strict=False) for text in texts)
    except ValueError as error:
        raise AccessError(f"--proxy takes an address or a network such as 10.1.0.0/16: {error}") from error


def read_secret(path: Path) -> str:
    """Read the secret that the server shares with its proxy: the only line of a file.

    Raise ``AccessError`` if others can read the file, or it holds anything but one word of enough characters.
    """
    try:
        secret, mode = path.read_text(encoding="utf-8").strip(), path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"--proxy-secret {path} cannot be read: {reason_of(error)}") from error
    # systemd protects the folder of credentials; an access list makes its files look readable by their group.
    if mode & 0o077 and str(path.parent) != os.environ.get("CREDENTIALS_DIRECTORY"):
        raise AccessError(f"--proxy-secret {path} can be read by others: chmod 600 {path}")
    if len(secret) < LEAST_SECRET or len(secret.split()) != 1 or not secret.isascii():
        raise AccessError(
            f"--proxy-secret {path}: write one word of {LEAST_SECRET} ASCII characters or more; openssl rand -hex 32 "
            "prints one"
        )
    return secret


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add the options that say who may sign in, and for which host names the server answers."""
    parser.add_argument(
        "--proxy",
        action="append",
        default=[],
        metavar="NETWORK",
        help="address or network of a proxy; its requests state the client's address (X-Forwarded-For) and the "
        "request's id, but identify nobody; may repeat",
    )
    parser.add_argument(
        "--proxy-secret",
        type=Path,
        metavar="FILE",
        help=f"file with a secret that the proxy knows: a request from --proxy with the header '{USER_HEADER}: SECRET "
        "NAME' comes from that person",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer only requests for this host name and for localhost; may be given several times (default: only "
        "localhost if --host is localhost, otherwise every name)",
    )


def access_of(args: argparse.Namespace) -> Access:
    """Read from the options who may sign in and for which host names the server answers.

    Raise ``AccessError`` if an option is wrong.
    """
    if args.proxy_secret and not args.proxy:
        raise AccessError("--proxy-secret needs --proxy: give the address of the proxy that knows the secret")
    loopback = ("localhost", "127.0.0.1", "[::1]")
    named = tuple(args.allow_host)
    hosts = (*loopback, *named) if named or args.host in ("localhost", "127.0.0.1", "::1") else ()
    secret = read_secret(args.proxy_secret) if args.proxy_secret else ""
    alone = "" if args.proxy or named or args.host not in ("localhost", "127.0.0.1", "::1") else _account()
    return Access(read_networks(args.proxy), secret, hosts, alone)


def _account() -> str:
    try:
        return getpass.getuser()[:_LONGEST_NAME]
    except (KeyError, OSError):  # the account has no name
        return str(os.getuid())
