"""Small wheels and environments, for tests that install packages without a network."""

import importlib.util
import os
import sys
import textwrap
import venv
import zipfile
from importlib.metadata import files
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, code: str, *requires: str, compiled: bool = False) -> Path:
    """Write a wheel of one module into the folder; ``compiled`` adds a library that nothing loads."""
    about = f"{name}-{version}.dist-info"
    content = {
        f"{name}.py": textwrap.dedent(code),
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {text}\n" for text in requires),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content |= {f"{name}_native.so": ""} if compiled else {}
    record = "".join(f"{path},,\n" for path in [*content, f"{about}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**content, f"{about}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel


def make_environment(folder: Path) -> Path:
    """Make an empty Python environment; return the folder of its packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def other_triton(packages: Path, version: str, file: str, old: str, new: str) -> None:
    """Write the installed Triton into a folder of packages, with another version and one text of one file changed.

    All other files are links, because the compiler has 0.3 GB.
    """
    found = importlib.util.find_spec("triton")
    home = Path(found.submodule_search_locations[0])
    for place, folders, names in os.walk(home):
        folders[:] = [name for name in folders if name != "__pycache__"]
        there = packages / "triton" / Path(place).relative_to(home)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            (there / name).symlink_to(Path(place) / name)
    changed = packages / "triton" / file
    text = changed.read_text()
    assert text.count(old) == 1
    changed.unlink()
    changed.write_text(text.replace(old, new))
    about = packages / f"triton-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n")
    # Triton finds its backends by their entry points.
    entry_points = next(file for file in files("triton") or () if file.name == "entry_points.txt")
    (about / "entry_points.txt").write_text(entry_points.read_text())
