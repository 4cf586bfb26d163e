"""Toolchains are installed once, by a real pip without a network, and precede the installed packages."""

import os
import re
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from wheels import make_environment, make_wheel

from lockstep.processes.toolchain import INSTALLED, Toolchain, ToolchainError, UnknownToolchain, toolchain_of
from lockstep.processes.toolchain.install_packages import RETENTION_S
from lockstep.processes.toolchain.release import release_of


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder of wheels, which pip searches, and an empty cache; pip asks no index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    for number in ("1.0", "2.0"):
        make_wheel(tmp_path / "wheels", "pace", number, f"PACE = {number}\n")
    return tmp_path / "wheels"


def pace_of(toolchain):
    """What a process under this toolchain imports."""
    path = os.pathsep.join(map(str, toolchain.folders))
    asked = [sys.executable, "-c", "import numpy, pace; print(pace.PACE, numpy.__name__)"]
    return subprocess.run(asked, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True).stdout.split()


def test_a_side_is_installed_once_and_precedes_what_is_installed(wheels):
    said = []
    sides = [toolchain_of(f"pace=={number}", say=said.append) for number in ("1.0", "2.0")]
    assert [pace_of(side) for side in sides] == [["1.0", "numpy"], ["2.0", "numpy"]]
    assert [side.versions()["pace"] for side in sides] == ["1.0", "2.0"]
    assert len({INSTALLED.digest(), *(side.digest() for side in sides)}) == 3
    assert len(said) == 2
    assert said[0].startswith("installing pace==1.0 into ")
    assert toolchain_of("pace==1.0", say=said.append) == sides[0]
    assert len(said) == 2, "it is there"


def test_several_packages_and_a_wheel_by_its_path_make_one_side(wheels):
    other = make_wheel(wheels / "apart", "brake", "0.1", "PACE = 0\n")
    side = toolchain_of(f"pace==2.0,{other}")
    assert len(side.folders) == 1
    assert {name: side.versions()[name] for name in ("pace", "brake")} == {"pace": "2.0", "brake": "0.1"}
    make_wheel(wheels / "apart", "brake", "0.1", "PACE = 1\n")
    assert toolchain_of(f"pace==2.0,{other}").folders != side.folders, "the wheel has other content"


def test_what_a_release_pins_comes_with_it_unless_the_environment_has_it(wheels):
    make_wheel(wheels, "brake", "0.1", "PACE = 0\n")
    own = f"numpy=={version('numpy')}"
    make_wheel(wheels, "car", "1.0", "import pace\n", "pace==1.0", "brake>=0.1", own, "pace==2.0; extra == 'a'")
    release = release_of("car==1.0")
    assert (release.packages, release.pure) == (("car", "pace"), True)
    assert Toolchain("", (release.folder,)).versions()["pace"] == "1.0"
    assert release_of("car==1.0") == release


def test_an_interrupted_installation_is_made_again(wheels):
    complete = toolchain_of("pace==1.0")
    [folder] = complete.folders
    folder.rename(folder.with_suffix(".partial"))
    (folder.with_suffix(".partial") / "pace.py").write_text("broken")
    assert pace_of(toolchain_of("pace==1.0")) == ["1.0", "numpy"]
    assert sorted(path.suffix for path in folder.parent.iterdir()) == ["", ".lock"]


def test_two_commands_share_one_installation(wheels):
    said = []
    options = {"say": said.append}
    asked = [threading.Thread(target=toolchain_of, args=("pace==1.0",), kwargs=options) for _ in range(2)]
    for one in asked:
        one.start()
    for one in asked:
        one.join()
    assert sorted(re.sub(" into .*", "", line) for line in said) == [
        "another process installs pace==1.0",
        "installing pace==1.0",
    ]


def test_sides_that_nobody_used_for_long_are_deleted(wheels):
    [old] = toolchain_of("pace==1.0").folders
    long_ago = time.time() - RETENTION_S - 60
    os.utime(old, (long_ago, long_ago))
    [new] = toolchain_of("pace==2.0").folders
    assert (old.exists(), new.exists()) == (False, True)


def test_an_environment_is_a_side_with_its_packages_and_what_it_links(wheels, tmp_path):
    packages = make_environment(tmp_path / "there")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/pace.py").write_text("PACE = 'of the source'\n")
    (packages / "pace.pth").write_text(f"{tmp_path / 'source'}\n")
    side = toolchain_of(str(tmp_path / "there"))
    assert packages.resolve() in side.folders
    assert pace_of(side)[:3] == ["of", "the", "source"]
    assert side == toolchain_of(str(tmp_path / "there")), "a process asks twice"


def test_a_rebuilt_triton_of_an_environment_is_another_toolchain(tmp_path):
    packages = make_environment(tmp_path / "there")
    (packages / "triton").mkdir()
    library = packages / "triton" / "core.py"
    found = []
    for text in ("1", "2 "):
        library.write_text(text)
        script = "import sys; from lockstep.processes.toolchain import toolchain_of"
        script += "; print(toolchain_of(sys.argv[1]).digest())"
        asked = [sys.executable, "-c", script, str(tmp_path / "there")]
        home = Path(__file__).parents[2]
        found.append(subprocess.run(asked, cwd=home, capture_output=True, text=True, check=True).stdout)
    assert found[0] != found[1]


@pytest.mark.parametrize("text", ["triton", "triton>=3.6", "triton==", "nowhere/env", "pace==1.0,,", "gone.whl", ""])
def test_a_text_that_names_no_exact_toolchain_is_refused(wheels, text):
    with pytest.raises(UnknownToolchain, match=r"is not a toolchain: write one exact version \(triton==3.6.0\)"):
        toolchain_of(text)


def test_an_environment_of_another_python_is_refused_and_named(tmp_path):
    (tmp_path / "old/bin").mkdir(parents=True)
    python = tmp_path / "old/bin/python"
    python.write_text('#!/bin/sh\necho "[[3, 7], [], []]"\n')
    python.chmod(0o755)
    with pytest.raises(UnknownToolchain, match=r"is Python 3\.7, and this is Python 3\.\d+: .* make the environment"):
        toolchain_of(str(tmp_path / "old"))
    python.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UnknownToolchain, match="does not run as Python"):
        toolchain_of(str(tmp_path / "old"))
    python.chmod(0o644)
    with pytest.raises(UnknownToolchain, match=f"^{python} does not run as Python: Permission denied$"):
        toolchain_of(str(tmp_path / "old"))


def test_what_pip_says_is_told_and_nothing_is_left(wheels):
    with pytest.raises(ToolchainError, match=r"pip does not install pace==9\.9: .*No matching distribution found"):
        toolchain_of("pace==9.9")
    assert [path.suffix for path in (wheels.parent / "cache/toolchains").iterdir()] == [".lock"]
