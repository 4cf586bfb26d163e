"""The report on two commits names the changed kernels that no machine without a GPU can run."""

import pytest
from project import make_project

KERNELS = """
    import torch
    import triton
    import triton.language as tl
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl


    @triton.jit
    def simple(x, out):
        tl.store(out, tl.load(x) * 2)


    @triton.jit
    def mailed(x, out):
        found = 0.0
        while found == 0.0:
            found = tl.load(x, volatile=True)
        tl.store(out, found * 2)


    @triton.jit
    def counted(x, out):
        at = 0
        while at < 8:
            at += 1
        tl.store(out, tl.load(x) * at * 2)


    @gluon.jit
    def by_hand(x, out):
        gl.store(out, gl.load(x) * 2)


    def plain(x, weight, *, out=None):
        return torch.mm(x, weight, out=out)


    def launched(kernel):
        def variant(x, *, out):
            kernel[(1,)](x, out)
            return out

        return variant


    VARIANTS = {
        "plain": plain, "simple": launched(simple), "mailed": launched(mailed), "counted": launched(counted),
        "by_hand": launched(by_hand),
    }
"""
SENTENCE = (
    "  no machine without a GPU can run these changed kernels, because Triton's interpreter cannot: {}. "
    "Run their tests on a GPU"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = make_project(tmp_path_factory.mktemp("unrun") / "project")
    made.write("toy/product.py", KERNELS)
    made.commit("Add kernels")
    return made


BOTH = "by_hand (Gluon), mailed (waits for other programs)"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (" * 2)", " * 3)", BOTH),  # of each kernel
        pytest.param("kernel[(1,)]", "kernel[(2,)]", BOTH, marks=pytest.mark.thorough),  # the launch
        pytest.param("found * 2", "found * 3", "mailed (waits for other programs)", marks=pytest.mark.thorough),
        ("tl.load(x) * 2", "tl.load(x) * 3", ""),
        ('"by_hand": launched(by_hand)', '"by_hand": launched(by_hand), "new": launched(by_hand)', "by_hand (Gluon)"),
    ],
)
def test_changed_kernels_that_only_a_gpu_runs_are_named(project, old, new, named):
    project.write("toy/product.py", KERNELS.replace(old, new))
    shown = project.lockstep("code", "diff", "HEAD", ".", "--target", "sm_90", "--markdown", "told.md").stdout
    said = [line for line in shown.splitlines() if "no machine without a GPU" in line]
    assert said == ([SENTENCE.format(named)] if named else []), shown
    written = project.root / "told.md"
    assert written.read_text().count("no machine without a GPU") == len(said)
    written.unlink()
