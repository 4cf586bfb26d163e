"""Whether Triton's assembler survives what Inductor does to it."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

# In a process of its own: what it does to the environment is for the whole process, and remembered.
PROGRAM = """
    import json, os, sys
    from pathlib import Path

    import torch._inductor.runtime.compile_tasks as tasks
    from triton import knobs

    from lockstep.machine_code.compiled_tree import _surroundings
    from lockstep.gpu.triton_assembler import ASSEMBLER, assembler_version, keep_toolchain, own_assembler
    from lockstep.processes.toolchain import INSTALLED

    before = _surroundings(INSTALLED)
    if "keep" in sys.argv:
        keep_toolchain()
    _surroundings.cache_clear()
    kept = _surroundings(INSTALLED)
    # Where it looks for the assembler of torch's wheel; torch without CUDA has none.
    tasks.__file__ = os.path.join(sys.argv[1], "_inductor", "runtime", "compile_tasks.py")
    tasks._set_triton_ptxas_path()
    print(json.dumps({
        "ptxas": knobs.nvidia.ptxas.path, "own": str(own_assembler()), "same": before == kept,
        "cache": os.environ.get("TRITON_CACHE_DIR"), "version": assembler_version(90), "expected": knobs.cache.dir,
    }))
"""


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "_inductor" / "bin" / "ptxas"
    path.parent.mkdir(parents=True)
    path.write_text('#!/bin/sh\necho "Cuda compilation tools, release 99.1, V99.1.0"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def run(tmp_path, other):
    def call(*arguments, **variables):
        hidden = ("TRITON_PTXAS_PATH", "TRITON_CACHE_DIR")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path), *arguments]
        done = subprocess.run(
            program, capture_output=True, text=True, check=False, env={**environment, **variables}
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def test_inductor_changes_the_assembler_of_a_process_unless_it_is_kept(run, other):
    found = run()
    assert (found["ptxas"], found["version"]) == (other, "99.1")
    found = run("keep")
    assert found["ptxas"] == found["own"]
    assert found["version"] not in ("", "99.1")
    assert found["cache"] == found["expected"]
    # What was found out where nothing was kept is found again.
    assert found["same"]


def test_an_assembler_that_the_user_chose_stays(run, other, tmp_path):
    found = run("keep", TRITON_PTXAS_PATH=other, TRITON_CACHE_DIR=str(tmp_path))
    assert (found["ptxas"], found["cache"]) == (other, str(tmp_path))
