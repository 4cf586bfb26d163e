"""A function's name stands for its code only while no GPU code was built outside the installation."""

import subprocess
import sys
from pathlib import Path

import pytest
from markupsafe import _speedups

ASK = """
import ctypes, os, sys
from pathlib import Path
from lockstep.same_work.library_code import names_stand_for_code
ctypes.CDLL(sys.argv[1])
for replacement in sys.argv[3:]:
    os.replace(replacement, sys.argv[1])
print(names_stand_for_code(Path(sys.argv[2])))
"""

#: A small library that every interpreter of this environment can load.
HOST = Path(_speedups.__file__)


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "checkout").mkdir()
    (tmp_path / "built").mkdir()
    return tmp_path


def ask(library, place, *replacements):
    asked = [sys.executable, "-c", ASK, str(library), str(place / "checkout"), *map(str, replacements)]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def library(folder, *, gpu_code):
    path = folder / "extension.so"
    path.write_bytes(HOST.read_bytes() + (b"\0.nv_fatbin\0" if gpu_code else b""))
    return path


def test_an_installed_library_changes_nothing(place):
    assert ask(HOST, place) == "True"


@pytest.mark.parametrize("gpu_code", [True, False])
def test_a_library_of_the_packages_under_test_may_change_from_commit_to_commit(place, gpu_code):
    assert ask(library(place / "checkout", gpu_code=gpu_code), place) == "False"


def test_gpu_code_that_was_built_into_a_cache_may_change_from_commit_to_commit(place):
    assert ask(library(place / "built", gpu_code=True), place) == "False"


def test_a_launcher_without_gpu_code_changes_nothing(place):
    # Triton and torch.compile build such libraries in their caches.
    assert ask(library(place / "built", gpu_code=False), place) == "True"


@pytest.mark.parametrize("gpu_code", [False, True])
def test_a_launcher_that_another_process_has_built_as_well_is_judged_by_its_file(place, gpu_code):
    (place / "other").mkdir()
    loaded, replacement = library(place / "built", gpu_code=False), library(place / "other", gpu_code=gpu_code)
    assert ask(loaded, place, replacement) == str(not gpu_code)


def test_a_library_that_the_environment_names_is_installed(place, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(place / "built"))
    assert ask(library(place / "built", gpu_code=True), place) == "True"


def test_a_library_with_a_function_of_torchs_name_is_seen(place):
    name = "_ZN2at6native13reduce_kernelILi512E"
    path = library(place / "built", gpu_code=True)
    asked = """
import ctypes, sys
from lockstep.same_work.library_code import only_torch_has
ctypes.CDLL(sys.argv[1])
print(only_torch_has(frozenset(sys.argv[2:])))
"""

    def only_torchs():
        return subprocess.run([sys.executable, "-c", asked, path, name], capture_output=True, text=True).stdout.strip()

    assert only_torchs() == "True"
    path.write_bytes(path.read_bytes() + name.encode())
    assert only_torchs() == "False"
