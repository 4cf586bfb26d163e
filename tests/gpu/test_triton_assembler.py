"""Whether Triton's assembler survives what Inductor does to it."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

# Each case in a fork: what it does to the environment is for the whole process, and remembered.
PROGRAM = """
    import json, os, sys

    import torch._inductor.runtime.compile_tasks as tasks
    from triton import knobs

    from lockstep.machine_code.compiled_tree import _surroundings
    from lockstep.gpu.triton_assembler import ASSEMBLER, assembler_version, keep_toolchain, own_assembler
    from lockstep.processes.toolchain import INSTALLED

    def found(keep, variables):
        os.environ.update(variables)
        before = _surroundings(INSTALLED)
        if keep:
            keep_toolchain()
        _surroundings.cache_clear()
        kept = _surroundings(INSTALLED)
        # Where it looks for the assembler of torch's wheel; torch without CUDA has none.
        tasks.__file__ = os.path.join(sys.argv[1], "_inductor", "runtime", "compile_tasks.py")
        tasks._set_triton_ptxas_path()
        return {
            "ptxas": knobs.nvidia.ptxas.path, "own": str(own_assembler()), "same": before == kept,
            "cache": os.environ.get("TRITON_CACHE_DIR"), "version": assembler_version(90), "expected": knobs.cache.dir,
        }

    for case in json.loads(sys.argv[2]):
        if not os.fork():
            print(json.dumps(found(*case)), flush=True)
            os._exit(0)
        assert os.wait()[1] == 0
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


def test_inductor_changes_the_assembler_of_a_process_unless_it_is_kept_or_the_user_chose_it(tmp_path, others):
    hidden = ("TRITON_PTXAS_PATH", "TRITON_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    chosen = {"TRITON_PTXAS_PATH": others[0], "TRITON_CACHE_DIR": str(tmp_path)}
    cases = json.dumps([(False, {}), (True, {}), (True, chosen)])
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path), cases]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    free, kept, own = map(json.loads, done.stdout.splitlines())
    assert free["ptxas"] in others
    assert free["version"] == "99.1"
    assert kept["ptxas"] == kept["own"]
    assert kept["version"] not in ("", "99.1")
    assert kept["cache"] == kept["expected"]
    # What was found out where nothing was kept is found again.
    assert kept["same"]
    assert (own["ptxas"], own["cache"]) == (others[0], str(tmp_path))
