"""What keeps a GPU from measuring, on the stand-in library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.gpu.preflight import Preflight

ROOT = Path(__file__).parents[2]

LOOK = """
from lockstep.gpu.nvml import Gpu
from lockstep.gpu.preflight import preflight
print(preflight(Gpu.open(0)))
"""


BEGIN = """
from argparse import Namespace
from types import SimpleNamespace
from lockstep.commands.shard_option import ShardRun
from lockstep.gpu.nvml import Gpu
from lockstep.processes.exit_status import Unusable
from lockstep.record.provenance import Host
conf = SimpleNamespace(results_dir="results", env_dir=".asv")
run = ShardRun(conf, Namespace(shard="1/1", range="HEAD", bench=None), [])
try:
    run.begin(Host({"gpu_uuid": Gpu.open(0).uuid}, "unlocked", "unlocked"), "here-unlocked")
except Unusable as error:
    print(error)
"""


def look(library, folder, script=LOOK, **settings):
    environment = {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library), "STAND_IN": str(folder), **settings}
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout, {"Preflight": Preflight}) if script == LOOK else done.stdout


@pytest.mark.parametrize("settings", [{}, {"STAND_IN_READ": "3"}])
def test_an_idle_gpu_may_measure_whatever_its_driver_reports(library, tmp_path, settings):
    assert look(library, tmp_path, **settings) == Preflight()


@pytest.mark.parametrize(
    ("file", "number", "fault"),
    [
        ("processes", 2**22 + 1, "not visible from here"),
        ("reasons", 0x8, "lowered by hardware slowdown"),
        ("reasons", 0x80, "lowered by power brake"),
    ],
)
def test_a_fault_is_told(library, tmp_path, file, number, fault):
    (tmp_path / f"{file}-0").write_text(str(number))
    found = look(library, tmp_path)
    assert len(found.faults) == 1
    assert fault in found.faults[0]
    assert found.marks == ()


def test_another_process_on_the_gpu_is_told_with_its_name(library, tmp_path):
    (tmp_path / "processes-0").write_text(str(os.getpid()))
    [fault] = look(library, tmp_path).faults
    assert f"process {os.getpid()} runs on it: " in fault


@pytest.mark.parametrize(
    ("file", "number", "mark"),
    [
        ("margin", 4, "at 41 °C it is 4 °C from slowing down"),
        ("reasons", 0x20, "lowered by heat"),
        ("ecc", 2, "2 uncorrected errors"),
        ("remap", 1, "reset the GPU"),
    ],
)
def test_what_a_reader_must_know_is_marked(library, tmp_path, file, number, mark):
    (tmp_path / f"{file}-0").write_text(str(number))
    found = look(library, tmp_path)
    assert found.faults == ()
    assert len(found.marks) == 1
    assert mark in found.marks[0]


def test_a_shard_is_not_measured_on_a_gpu_at_work(library, tmp_path):
    assert "cannot measure" not in look(library, tmp_path, BEGIN)
    (tmp_path / "processes-0").write_text(str(os.getpid()))
    assert f"cannot measure now: process {os.getpid()} runs on it" in look(library, tmp_path, BEGIN)
