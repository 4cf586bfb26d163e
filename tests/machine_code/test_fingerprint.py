"""Folder, lines and names do not change the fingerprint of a kernel, but code does, for Blackwell as well."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lockstep.machine_code.compiling.cubin import without_lines

#: The repository and its tests.
PYTHONPATH = f"{Path(__file__).parents[2]}:{Path(__file__).parents[1]}"

# CUDA 13's assembler gave this kernel for sm_100 two namings of its registers, one in three times.
PROGRAM = """
    import torch
    import triton
    import triton.language as tl

    from compiling import intercept
    from lockstep.machine_code.compiling.cubin import fingerprint

    @triton.jit
    def NAME(x, y, o, n, BLOCK: tl.constexpr):
        a = tl.arange(0, BLOCK)
        acc = tl.zeros((BLOCK, BLOCK), tl.float32)
        for k in range(0, n, BLOCK):
            left = tl.load(x + a[:, None] * n + k + a[None, :])
            acc = tl.dot(left, tl.load(y + (k + a)[:, None] * n + a[None, :]), acc)
        tl.store(o + a[:, None] * n + a[None, :], acc.to(tl.float16))

    with intercept(ARCH) as kernels:
        x = torch.empty(1024, 1024, device="meta", dtype=torch.float16)
        NAME[(1,)](x, x, x, 1024, BLOCK=128, num_warps=WARPS)
    print(fingerprint(kernels[0].asm, kernels[0].metadata))
"""


def compiled(folder, arch, name="mm", warps=4, comment=""):
    folder.mkdir()
    text = textwrap.dedent(PROGRAM)
    for word, value in {"NAME": name, "ARCH": str(arch), "WARPS": str(warps)}.items():
        text = text.replace(word, value)
    (folder / "program.py").write_text(comment + text)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": PYTHONPATH, "TRITON_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, folder / "program.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("arch", [90, 100])
def test_only_code_changes_a_fingerprint(tmp_path, arch):
    fingerprint = compiled(tmp_path / "a", arch)
    assert compiled(tmp_path / "elsewhere", arch, name="other_name", comment="# words\n\n") == fingerprint
    assert compiled(tmp_path / "c", arch, warps=8) != fingerprint


def test_what_is_left_of_ptx_is_code():
    text = (
        '\t.file\t1 "/here/k.py"\n$L__func_begin0:\n\t.loc\t1 3 0  // k.py:3:0\n'
        "\tmov.u32 \t%r1, %tid.x;  // a comment\n$L__BB0_1:\n\tret;\n\t.section\t.debug_abbrev\n\t{\n.b8 1\n\t}\n"
    )
    assert without_lines(text).split("\n") == ["\tmov.u32 \t%r1, %tid.x;", "$L__BB0_1:", "\tret;", ""]
