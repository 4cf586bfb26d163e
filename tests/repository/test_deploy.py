"""The unit file is one that systemd takes and exposes little; the container runs without rights."""

import argparse
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dashboard.auth.credentials import access_of
from dashboard.server.command import Dashboard

UNIT = Path(__file__).parents[2] / "deploy" / "lockstep-dashboard.service"

#: The unit's settings, and how the operator's page gives the MB of each of two analysing processes and two workers.
MEMORY = "MemoryHigh", "MemoryMax"
SIZES = r"(\d+) MB for the largest machine, and a second process", r"A worker takes about (\d+) MB"

CONTAINERFILE = UNIT.with_name("Containerfile")


@pytest.fixture
def analyze(tmp_path):
    """Run systemd-analyze on the unit, whose program is one that is here."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze: the unit is not verified")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/lockstep/bin/lockstep", "/bin/true"))

    def run(*arguments):
        command = [program, *arguments, str(unit)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_systemd_takes_the_unit(analyze):
    done = analyze("verify", "--man=no")
    # What it says of the machine's own units is not ours.
    said = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, said) == (0, [])


def test_the_unit_exposes_little(analyze):
    done = analyze("security", "--offline=true", "--no-pager")
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    if found is None:
        pytest.skip("this systemd-analyze has no offline security check")
    assert float(found[1]) < 2.0


def test_the_units_memory_is_that_of_the_operators_page_and_holds_an_analysis():
    high, most = (int(re.search(rf"^{name}=(\d+)G$", UNIT.read_text(), re.MULTILINE)[1]) for name in MEMORY)
    page = (UNIT.parents[1] / "docs" / "operating.md").read_text()
    assert f"The unit allows {high} to {most} GB." in page
    [analysis], [worker] = (map(int, re.findall(words, page)) for words in SIZES)
    assert 1000 * high > 2 * analysis + 2 * worker


def test_the_units_command_is_one_of_ours(tmp_path):
    (tmp_path / "proxy-secret").write_text("s" * 32)
    (tmp_path / "proxy-secret").chmod(0o600)
    [command] = re.findall(r"^ExecStart=/opt/lockstep/bin/lockstep (.*)$", UNIT.read_text(), re.MULTILINE)
    parser = argparse.ArgumentParser()
    Dashboard.setup_arguments(parser.add_subparsers())
    args = parser.parse_args(command.replace("${CREDENTIALS_DIRECTORY}", str(tmp_path)).split())
    access = access_of(args)
    assert access.writable
    assert access.hosts[-1] == "bench.example.org"


def test_the_containers_command_is_one_of_ours_and_runs_without_rights():
    text = CONTAINERFILE.read_text()
    [command] = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    parser = argparse.ArgumentParser()
    Dashboard.setup_arguments(parser.add_subparsers())
    program, *options = json.loads(command)
    args = parser.parse_args([*options, "--allow-host", "bench.example.org"])
    assert (program, args.host, args.port) == ("lockstep", "0.0.0.0", 8050)
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001:10001"]
    assert f"http://127.0.0.1:{args.port}/healthz" in text
    assert args.cache is not None


def test_what_the_image_copies_is_there():
    root = CONTAINERFILE.parents[1]
    lines = re.findall(r"^COPY (?!--from)(.*) /src", CONTAINERFILE.read_text(), re.MULTILINE)
    copied = [name for line in lines for name in line.split()]
    assert copied
    assert [name for name in copied if not (root / name).exists()] == []
