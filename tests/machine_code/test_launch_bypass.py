"""Code that can launch kernels unseen by a trace is an input of the trace."""

import textwrap

import pytest

from lockstep.machine_code import CaseKey, Target, Tree, compare
from lockstep.machine_code.cache import Cache
from lockstep.machine_code.sources.launch_bypass import bypassing
from lockstep.suite.discovery import load_suites

SUITE = """
    from lockstep import Cost, Suite, grid


    class Sums(Suite):
        module = "toy.sums"
        baseline = "plain"
        cases = grid(M=[256])
        quick = grid(M=2)

        def draw(self, new, M):
            return {"x": new.normal(M)}

        def reference(self, x):
            return x + x

        def cost(self, M):
            return Cost(M, M)
"""

#: A cache of launches that stands aside while something looks, so that a trace has the ordinary way alone.
LAUNCHER = """
    from triton.runtime.jit import JITFunction

    RUN = JITFunction.run


    def unseen():
        return JITFunction.run is RUN


    def replay(x):
        return x * {factor}
"""
SUMS = """
    from toy.cached import call


    def plain(x):
        return call(x)


    VARIANTS = {"plain": plain}
"""
CACHED = """
    from toy.launcher import replay, unseen


    def call(x):
        return replay(x) if unseen() else x + x
"""


def tree(root, factor, sums=SUMS):
    files = {"__init__": "", "sums": sums, "cached": CACHED, "launcher": LAUNCHER.format(factor=factor)}
    (root / "toy").mkdir(parents=True)
    for name, text in files.items():
        (root / f"toy/{name}.py").write_text(textwrap.dedent(text))
    return Tree(root.name, root, ("toy",))


def test_a_change_of_what_is_launched_unseen_proves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "gauge").mkdir()
    (tmp_path / "gauge/__init__.py").write_text("")
    (tmp_path / "gauge/sums.py").write_text(textwrap.dedent(SUITE))
    base, head = tree(tmp_path, 2), tree(tmp_path / "head", 3)
    [suite] = load_suites(tmp_path / "gauge").values()
    compared = compare(base, head, [suite], Target.parse("sm_90"), cache=Cache())
    key = CaseKey(suite.name, "plain", "M=256")
    assert compared.base[key].host == compared.head[key].host
    assert not compared.base[key].unknown
    assert compared.status(key) == "unknown"
    [change] = compared.changes
    assert change.cases == (key,)
    assert str(change) == "unknown: toy/launcher.py may launch kernels unseen by a trace, and differ"


def files(**texts):
    return {f"toy/{name}.py": textwrap.dedent(text).encode() for name, text in texts.items()}


def found(**texts):
    return [name.removeprefix("toy/").removesuffix(".py") for name, _ in bypassing(files(**texts))]


def test_it_is_what_names_launching_what_imports_that_and_what_these_stand_on():
    texts = {
        "launcher": "from triton.runtime.jit import JITFunction\n",
        "cached": "from toy import launcher, pool\n",
        "pool": "from toy import sizes\n",
        "sizes": "",
        "family": "from toy import cached, kernels\n",
        "kernels": "import triton\n",
    }
    assert found(**texts) == ["cached", "launcher", "pool", "sizes"]
    assert found(family="import triton\n", kernels="k[(1,)](x)\nk.run(x, grid=(1,), warmup=False)\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "ASK = type(kernel).run\n",
        "ASK = getattr(type(kernel), 'run')\n",
        "import triton.runtime.jit as jit\nASK = getattr(jit, 'JITFunction')\n",
        "from triton.compiler import CompiledKernel as C\n",
        "def f(compiled):\n    launch = compiled.run\n    launch(1, 1, 1)\n",
        "def f(kernel):\n    return kernel.packed_metadata\n",
        "def f(driver):\n    return driver.active.get_current_stream(0)\n",
        "import triton\nHOOKED = triton.knobs.runtime.launch_enter_hook\n",
    ],
)
def test_every_way_to_the_launcher_counts(text):
    assert found(a=text) == ["a"]


def test_comments_and_docstrings_do_not_count():
    before, after = (
        bypassing(files(a=f'"""{words}."""\nfrom triton.runtime.jit import JITFunction  # {words}\n'))
        for words in ("One", "Two")
    )
    assert before == after != ()
