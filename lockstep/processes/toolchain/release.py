"""Install a release of any package beside the running environment, and say what it imports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lockstep.processes.toolchain.install_packages import overlay
from lockstep.processes.toolchain.model import Toolchain
from lockstep.processes.toolchain.parse_toolchain import UnknownToolchain
from lockstep.processes.toolchain.releases import ends

#: Packages of which a process holds one version: what measures needs them.
_HELD = frozenset({"torch", "triton", "numpy", "lockstep"})


@dataclass(frozen=True)
class Release:
    """An installed release.

    Attributes:
        name: such as "liger-kernel==0.6.2".
        folder: folder that holds its packages; its dependencies come from the running environment, unless it pins them.
        packages: names of the top-level packages and modules in the folder.
        pure: whether one process can hold two releases: no compiled code, and nothing that measuring itself needs.
    """

    name: str
    folder: Path
    packages: tuple[str, ...]
    pure: bool


def release_of(name: str, say: Callable[[str], None] = lambda line: None) -> Release:
    """Return a release, and install it if necessary, with the dependencies that it pins and the environment lacks.

    ``name`` is "liger-kernel==0.6.2"; ``say`` is called before an installation. Raise ``ToolchainError`` if pip cannot
    install it.
    """
    folder = overlay([name], say)
    if lacking := _lacking(name, folder):
        folder = overlay([name, *lacking], say)
    packages = tuple(sorted(filter(None, map(_imported, folder.iterdir()))))
    return Release(name, folder, packages, _HELD.isdisjoint(packages) and not any(folder.rglob("*.so")))


def two_releases(text: str, say: Callable[[str], None]) -> tuple[Release, Release]:
    """Return the ends of a range ``liger-kernel==0.6.1..0.6.2``.

    Raise ``UnknownToolchain`` if the text is not a range. Raise ``ToolchainError`` if pip cannot install one of them.
    """
    package, low, high = ends(text)
    if low == high:
        raise UnknownToolchain(f"{text}: both ends are {low}")
    return release_of(f"{package}=={low}", say), release_of(f"{package}=={high}", say)


def _lacking(name: str, folder: Path) -> list[str]:
    """Return the exact versions that a release requires, as fla-core==0.5.0, and the environment does not have."""
    have = Toolchain(name, (folder,)).versions()
    requirements = [Requirement(text) for one in distributions(path=[str(folder)]) for text in one.requires or ()]
    lacking = []
    for requirement in requirements:
        exact = [one.version for one in requirement.specifier if one.operator == "==" and "*" not in one.version]
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if exact and wanted and have.get(canonicalize_name(requirement.name), "") not in requirement.specifier:
            lacking.append(f"{requirement.name}=={exact[0]}")
    return lacking


def _imported(path: Path) -> str:
    """Return the name under which an entry of the folder is imported; "" if it is not."""
    name = path.stem if path.suffix == ".py" else path.name
    return name if name.isidentifier() and (path.is_file() or next(path.rglob("*.py"), None)) else ""
