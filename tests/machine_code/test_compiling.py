"""Kernels compile for a target without a GPU, and the compiler's report is read."""

import textwrap

import pytest
from compiling import compile_in_subprocess

# Triton reads a kernel's source from a file, so the sample is one that the subprocess imports.
SAMPLE = """
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, size, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, at < size) + tl.load(y + at, at < size), at < size)

    @triton.jit
    def crowded(x, out, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tile = tl.load(x + at[:, None] * BLOCK + at[None, :])
        total = tl.dot(tile, tile) * 2.0
        tl.store(out + at[:, None] * BLOCK + at[None, :], tl.dot(total.to(tl.float16), tile))
"""


@pytest.fixture
def sample(tmp_path, monkeypatch):
    (tmp_path / "sample_kernels.py").write_text(textwrap.dedent(SAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_kernel_is_compiled_and_described_without_a_gpu(sample):
    [kernel] = compile_in_subprocess(
        "from sample_kernels import add\n"
        "x = torch.empty(1000, device='meta')\n"
        "add[(1,)](x, x, x, 1000, BLOCK=1024, num_warps=8)\n"
        "add[(1,)](x, x, x, 1000, BLOCK=1024, num_warps=8)"
    )
    assert kernel.name == "add"
    assert kernel.num_warps == 8
    assert 8 <= kernel.registers <= 255
    assert kernel.stack_bytes == 0


def test_spills_are_seen(sample):
    [kernel] = compile_in_subprocess(
        "from sample_kernels import crowded\n"
        "x = torch.empty(256, 256, device='meta', dtype=torch.float16)\n"
        "crowded[(1,)](x, x.float(), BLOCK=256, num_warps=4)"
    )
    assert kernel.stack_bytes > 0


def test_a_failure_carries_the_traceback(sample):
    with pytest.raises(RuntimeError, match="no_such_kernel"):
        compile_in_subprocess("from sample_kernels import no_such_kernel")


def test_a_process_that_dies_or_takes_too_long_is_told():
    with pytest.raises(RuntimeError, match="ended its process, exit status 3"):
        compile_in_subprocess("import os; os._exit(3)")
    with pytest.raises(RuntimeError, match=r"took longer than 0\.1 s"):
        compile_in_subprocess("import time; time.sleep(30)", timeout=0.1)


def test_each_compilation_has_a_process_and_the_environment_of_its_own(monkeypatch):
    monkeypatch.setenv("SAID", "here")
    leaves = "import os, triton; assert os.environ.pop('SAID') == 'here'; assert not hasattr(triton, 'left')"
    for _ in range(2):
        assert compile_in_subprocess(f"{leaves}; triton.left = 1") == []
