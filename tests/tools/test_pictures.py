"""The README's pictures: one command makes them from the recorded results, and they stay small."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tools.pictures.chromium import find_chromium
from tools.pictures.command import size
from tools.pictures.pages import FOR_README, MACHINE

ROOT = Path(__file__).parents[2]

#: Bytes that a picture in the repository may have.
MOST = 160_000


def dimensions(picture):
    """Width and height of a PNG, from its first chunk."""
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    return struct.unpack(">II", content[16:24])


def test_the_readme_shows_pictures_that_are_there_and_small():
    shown = re.findall(r"!\[[^]]+\]\((docs/pictures/[\w-]+\.png)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [Path(path).stem for path in shown] == list(FOR_README)
    for path in shown:
        assert dimensions(ROOT / path) == (1280, 800)
        assert (ROOT / path).stat().st_size <= MOST


@pytest.mark.thorough
def test_the_command_photographs_the_recorded_results(tmp_path):
    pytest.importorskip("playwright.sync_api", reason="no playwright: pages are not tested in a browser")
    if find_chromium() is None:
        pytest.skip("no chromium: pages are not tested in a browser (make system-deps installs it)")
    command = [sys.executable, "-m", "tools", "pictures", str(tmp_path), "--size", "900x700"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in FOR_README:
        assert f"wrote {tmp_path / name}.png" in done.stdout
        assert dimensions(tmp_path / f"{name}.png") == (900, 700)


def test_results_without_the_recorded_machine_are_a_mistake(tmp_path):
    command = [sys.executable, "-m", "tools", "pictures", str(tmp_path / "out"), "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 4
    assert f"{tmp_path} has no results of {MACHINE}" in done.stdout + done.stderr


def test_without_chromium_there_is_no_picture(tmp_path):
    command = [sys.executable, "-m", "tools", "pictures", str(tmp_path / "out")]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, (tmp_path / "out").exists()) == (3, False)
    assert "there is no Chromium" in done.stderr


@pytest.mark.parametrize("text", ["1280", "1280x", "ax800"])
def test_a_size_is_two_numbers(text):
    with pytest.raises(ValueError, match=r"invalid literal|not enough"):
        size(text)
