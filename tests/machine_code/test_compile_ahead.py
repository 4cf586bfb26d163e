"""Compiling ahead: the process that measures finds what was compiled, in Triton's cache and in Lockstep's."""

import os
import subprocess
import sys
import textwrap

import pytest

KERNEL = """
    from types import SimpleNamespace

    import triton
    import triton.language as tl

    @triton.jit
    def double(x, out, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) * 2)

    def twice(x, *, out, config=64):
        double[(x.numel() // config,)](x, out, BLOCK=config)
        return out

    VARIANTS = {"twice": twice}
    CANDIDATES = {"twice": lambda M: SimpleNamespace(choice="block", sizes={"M": M}, configs=(128, 256))}
"""

SUITE = """
    from lockstep import Cost, Suite, grid

    class Twice(Suite):
        module = "toy.twice"
        baseline = "twice"
        cases = quick = grid(M=512)

        def draw(self, new, M):
            return {"x": new.normal(M)}

        def buffers(self, new, M):
            return new.empty(M)

        def reference(self, x):
            return x * 2

        def cost(self, M):
            return Cost(M, 4 * M)
"""

HOST = {"device": "cuda", "capability": "9.0", "sm_count": "132", "gpu": "NVIDIA H200", "l2_bytes": "52428800"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    for path, text in (
        ("toy/twice.py", KERNEL),
        ("toy/__init__.py", ""),
        ("suites/__init__.py", ""),
        ("suites/twice.py", SUITE),
    ):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(textwrap.dedent(text))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)

    def run(script):
        program = f"from pathlib import Path\nHOST = {HOST}\n{textwrap.dedent(script)}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run


def test_the_worker_knows_the_code_that_was_compiled_ahead_for_its_gpu(run):
    precompiled = """
        from lockstep.machine_code.targets import Target
        from lockstep.suite.commit_sources import Tree
        from lockstep.machine_code.compiled_tree import compile_ahead
        from lockstep.suite.discovery import load_suites
        target = Target.of_host(HOST | {"sm_count": SM})
        print(compile_ahead(Tree(".", Path().resolve(), ("toy",)), load_suites(Path("suites")).values(), target, 300))
    """
    assert run("SM = '132'\n" + textwrap.dedent(precompiled)) == ["True"]
    known = """
        from lockstep.asv.worker import _known_code
        from lockstep.suite.discovery import load_suites
        [code] = _known_code(HOST, load_suites(Path("suites")), Path(), ("toy",)).values()
        print(code.kernels[0].name, code.unknown or "traced")
    """
    assert run(known) == ["double", "traced"]
    # The same sources for the same GPU are compiled once; another GPU may choose other kernels.
    assert run("SM = '132'\n" + textwrap.dedent(precompiled)) == ["False"]
    assert run("SM = '114'\n" + textwrap.dedent(precompiled)) == ["True"]


def test_every_candidate_is_compiled(run, tmp_path):
    run("""
        from lockstep.machine_code.targets import Target
        from lockstep.tuning.search_space import compile_all
        compile_all(Path("suites"), [("twice", "twice", "M=512")], Target.of_host(HOST))
    """)
    # The incumbent and two candidates.
    assert len(list((tmp_path / "triton").rglob("double.cubin"))) == 3
