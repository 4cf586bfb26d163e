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
def others(tmp_path):
    """Another assembler, in each place where a torch looks for one: 2.11 in its own folder, 2.13 in Inductor's."""
    paths = [tmp_path / "bin" / "ptxas", tmp_path / "_inductor" / "bin" / "ptxas"]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text('#!/bin/sh\necho "Cuda compilation tools, release 99.1, V99.1.0"\n')
        path.chmod(0o755)
    return [str(path) for path in paths]


@pytest.fixture
def run(tmp_path, others):
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


def test_inductor_changes_the_assembler_of_a_process_unless_it_is_kept(run, others):
    found = run()
    assert found["ptxas"] in others
    assert found["version"] == "99.1"
    found = run("keep")
    assert found["ptxas"] == found["own"]
    assert found["version"] not in ("", "99.1")
    assert found["cache"] == found["expected"]
    # What was found out where nothing was kept is found again.
    assert found["same"]


def test_an_assembler_that_the_user_chose_stays(run, others, tmp_path):
    found = run("keep", TRITON_PTXAS_PATH=others[0], TRITON_CACHE_DIR=str(tmp_path))
    assert (found["ptxas"], found["cache"]) == (others[0], str(tmp_path))
