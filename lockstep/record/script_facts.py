"""Facts about scripts in the provenance. They stand beside those of the machine, as a file may hold several scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SCRIPT, _PACKAGES = "script ", "packages of "


def facts_of_script(suite: str, digest: str, packages: Sequence[str]) -> dict[str, str]:
    """Return the facts of a script: a digest of what it measures, and the folders of the packages under test.

    Args:
        digest: "" if the script itself is under test.
        packages: relative to the repository's root.
    """
    return {f"{_SCRIPT}{suite}": digest, f"{_PACKAGES}{suite}": " ".join(packages)}


def script_digest(host: Mapping[str, str], suite: str) -> str:
    """Return the digest of a script in a run's facts; "" if unknown."""
    return host.get(f"{_SCRIPT}{suite}", "")


def script_packages(host: Mapping[str, str], suite: str) -> tuple[str, ...]:
    """Return the folders of the packages that a script has under test, by a run's facts; () if unknown."""
    return tuple(host.get(f"{_PACKAGES}{suite}", "").split())


def all_scripts(host: Mapping[str, str]) -> dict[str, str]:
    """Return the facts that are of scripts."""
    return {name: value for name, value in host.items() if name.startswith((_SCRIPT, _PACKAGES))}
