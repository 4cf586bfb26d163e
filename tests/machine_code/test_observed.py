"""What a record says of the code that ran: read off the kernels that were launched."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from lockstep.machine_code.model import CaseCode, CaseKey
from lockstep.machine_code.observed import Observer

#: The repository and its tests.
PYTHONPATH = f"{Path(__file__).parents[2]}:{Path(__file__).parents[1]}"

# Triton reads a kernel's source from a file, and pytest's process may have chosen the interpreter.
PROGRAM = """
    import json
    from dataclasses import asdict

    import torch
    import triton
    import triton.language as tl

    from compiling import intercept
    from lockstep.machine_code.model import CaseCode, CaseKey, KernelCode, MachineCode
    from lockstep.machine_code.compiling.cubin import mixes, registers_and_stack
    from lockstep.machine_code.observed import Observer

    KEY = CaseKey("toy", "add", "M=1")

    @triton.jit
    def add(x, out, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) + 1.0)

    def launch(observer):
        x = torch.empty(1024, device=DEVICE)
        with observer.watch(KEY):
            for block in (256, 512, 256):
                kernel = add[(1,)](x, x, BLOCK=block)
        return kernel

    def run():
        plain = Observer()
        kernel = launch(plain)
        first = plain.code(KEY)
        machines = [MachineCode(one.code, 8, 0, 0, {"all": 7}) for one in first.kernels]
        traced = CaseCode(tuple(KernelCode("add", "i", "f:1", {}, machine) for machine in machines), ("launch",))
        answers = []
        for known in (traced, CaseCode(traced.kernels[:1], ("launch",))):
            informed = Observer({KEY: known})
            launch(informed)
            answers.append(asdict(informed.code(KEY)))
        static = registers_and_stack(kernel.asm["cubin"])
        print(json.dumps([asdict(first), *answers, traced.host_fingerprint, static]))

    DEVICE = "cuda" if torch.cuda.is_available() else "meta"
    if DEVICE == "cuda":
        run()
    else:
        with intercept(90):
            run()
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    program = tmp_path_factory.mktemp("observed") / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = PYTHONPATH
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kernels_are_told_once_in_order(answers):
    kernels = answers[0]["kernels"]
    assert [kernel["name"] for kernel in kernels] == ["add", "add"]
    assert len({kernel["code"] for kernel in kernels}) == 2
    assert all(kernel["shared"] == 0 for kernel in kernels)
    assert {(kernel["warps"], kernel["stages"]) for kernel in kernels} == {(4, 3)}, "Triton's defaults"


def test_what_was_found_out_ahead_is_added(answers):
    bare, informed, *_ = answers
    assert [kernel["mix"] for kernel in bare["kernels"]] == [{}, {}]
    assert [kernel["mix"] for kernel in informed["kernels"]] == [{"all": 7}, {"all": 7}]


def test_the_host_side_is_told_only_where_trace_and_run_agree(answers):
    bare, informed, partial, host, _ = answers
    assert (bare["host"], informed["host"], partial["host"]) == ("", host, "")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU's driver")
def test_the_drivers_figures_are_the_assemblers(answers):
    first = answers[0]["kernels"][0]
    assert [first["registers"], first["spills"]] == answers[4]


def test_nothing_is_told_of_what_was_not_watched():
    assert Observer().code(CaseKey("toy", "add", "M=1")) is None


def test_calls_of_torch_alone_have_a_host_side():
    key = CaseKey("toy", "mm", "M=1")
    observer = Observer({key: CaseCode((), ("aten.mm",))})
    with observer.watch(key):
        torch.ones(1)
    code = observer.code(key)
    assert (code.kernels, len(code.host)) == ((), 16)
