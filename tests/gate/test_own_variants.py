"""Variants that a suite defines itself: today's functions over the code of both sides."""

import importlib
import sys
import textwrap
from dataclasses import asdict

import pytest
from project import make_project

from lockstep.gate.model import Group, GroupRequest
from lockstep.gate.namespaces import Sides
from lockstep.gate.sequential_decision import Test
from lockstep.gate.unchanged import compare_sources
from lockstep.gate.worker_client import GateWorker, Setup
from lockstep.suite.commit_sources import Tree
from lockstep.suite.discovery import load_suites
from lockstep.suite.family_files import definition_packages
from lockstep.suite.variants import NotInCommit, load_family

SUITE = """
    import functools

    from lockstep import Cost, Suite, grid, variant

    import aids


    @functools.cache
    def remembered():
        import toy.ops

        return toy.ops


    class Scale(Suite):
        baseline = "torch"
        cases = quick = grid(M=[4])

        def draw(self, new, M):
            return {"x": new.normal(M, M, dtype="float32")}

        def reference(self, x):
            return 2 * x.double()

        def cost(self, M):
            return Cost(M * M, 8 * M * M)

        @variant
        def torch(self, x):
            return 2 * x

        @variant
        def ours(self, x):
            return remembered().double(x)

        @variant
        def helped(self, x):
            return aids.call(x)

        @variant
        def later(self, x):
            from toy.later import double

            return double(x)

        @variant
        def broken(self, x):
            from toy.broken import double

            return double(x)
"""
AIDS = """
    def call(x):
        from toy.ops import double

        return double(x)
"""
OPS = "from toy import parts\n\nSIDE = {side!r}\n\n\ndef double(x):\n    return parts.TWO * x\n"
BROKEN = "import toy.missing\n\n\ndef double(x):\n    return x\n"


def write(root, side):
    for name, text in {
        "toy/__init__.py": "",
        "toy/ops.py": OPS.format(side=side),
        "toy/parts.py": "TWO = 2\n",
        "toy/apart.py": "OTHER = 1\n",
        "toy/broken.py": BROKEN,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def room(tmp_path, monkeypatch):
    """Two trees, and today's suite in a folder of another name for each test: Python imports a name once."""
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in [name for name in sys.modules if name.partition(".")[0] in ("toy", "aids")]:
        monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)
    folder = tmp_path / "today" / f"suites_{tmp_path.name}"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "scale.py").write_text(textwrap.dedent(SUITE))
    (tmp_path / "today" / "aids.py").write_text(textwrap.dedent(AIDS))
    for side in ("base", "head"):
        write(tmp_path / side, side)
    yield folder
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("toy", "aids", folder.name):
            del sys.modules[name]


def both(room, suite):
    tops = definition_packages(suite, ("toy",))
    assert tops == ("aids", room.name)
    return Sides(
        ["toy"], dict.fromkeys(tops, room.parent), base=room.parents[1] / "base", head=room.parents[1] / "head"
    )


def test_each_side_finds_its_own_code_whatever_the_suite_remembers(room):
    [suite] = load_suites(room).values()
    sides = both(room, suite)
    families = {side: sides.load_family(suite, side) for side in ("base", "head")}
    for side in ("base", "head", "base", "head"):
        with sides.active(side):
            for name in ("ours", "helped"):
                assert families[side].variants[name](3) == 6
            module = sys.modules[f"{room.name}.scale"]
            assert module.remembered().SIDE == importlib.import_module("toy.ops").SIDE == side
    assert sys.modules[f"{room.name}.scale"] is sys.modules[type(suite).__module__]
    assert type(suite) is sys.modules[f"{room.name}.scale"].Scale


def test_what_a_side_lacks_is_not_in_its_commit_and_what_is_broken_is_broken(room):
    [suite] = load_suites(room).values()
    sides = both(room, suite)
    (room.parents[1] / "head/toy/later.py").write_text("def double(x):\n    return x + x\n")
    with sides.active("base"):
        with pytest.raises(NotInCommit, match=r"no such module or name: No module named 'toy\.later'"):
            sides.load_family(suite, "base").variants["later"](3)
        with pytest.raises(ModuleNotFoundError, match=r"toy\.missing"):
            sides.load_family(suite, "base").variants["broken"](3)
    with sides.active("head"):
        assert sides.load_family(suite, "head").variants["later"](3) == 6


def test_a_package_that_does_not_import_fails_at_every_call(room):
    """Python keeps the modules that were imported before the one that failed."""
    [suite] = load_suites(room).values()
    sides = both(room, suite)
    (room.parents[1] / "head/toy/__init__.py").write_text("import toy.ops\nimport toy.wrong\n")
    (room.parents[1] / "head/toy/wrong.py").write_text("def (\n")
    for _ in range(2):
        with sides.active("head"), pytest.raises(SyntaxError):
            sides.load_family(suite, "head").variants["helped"](3)
    with sides.active("base"):
        assert sides.load_family(suite, "base").variants["helped"](3) == 6


def test_without_a_commit_an_import_that_fails_is_an_error(room):
    [suite] = load_suites(room).values()
    with pytest.raises(ModuleNotFoundError, match="toy"):
        load_family(suite).variants["later"](3)


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("toy/parts.py", "TWO = 2  # a pair\n", True),
        ("toy/apart.py", "OTHER = 2\n", False),  # the suite's "import toy.ops" binds the whole package
        ("toy/parts.py", "TWO = 2.0\n", False),
        ("toy/ops.py", OPS.format(side="base") + "\nREST = 1\n", False),
        ("toy/__init__.py", "X = 1\n", False),
        ("toy/broken.py", BROKEN.replace("missing", "lost"), False),
    ],
)
def test_a_change_in_what_a_variant_imports_is_never_the_same(room, file, text, same):
    # Where no tree has what a variant names, nothing shows what it does.
    scale = room / "scale.py"
    scale.write_text(scale.read_text().replace("toy.later", "toy.ops"))
    [suite] = load_suites(room).values()
    trees = [Tree(side, write(room.parents[1] / side, "base"), ("toy",)) for side in ("base", "head")]
    assert compare_sources(*trees, [suite]).same_sources == {"scale"}
    (trees[1].root / file).write_text(text)
    assert compare_sources(*trees, [suite]).same_sources == ({"scale"} if same else frozenset())


@pytest.mark.parametrize(
    ("own", "file", "text"),
    [
        # Today's suite decides what is imported, also beside its variants, and how it reads what it imports.
        ("from toy.apart import OTHER", "toy/apart.py", "OTHER = 2\n"),
        ("import importlib; importlib.import_module('toy.apart')", "toy/apart.py", "OTHER = 2\n"),
        ("import toy.parts; print(toy.parts.__doc__)", "toy/parts.py", '"""Words."""\nTWO = 2\n'),
    ],
)
@pytest.mark.parametrize("adapters", [True, False])
def test_what_the_suite_itself_imports_counts(room, own, file, text, adapters):
    module = '    module = "toy.ops"\n    baseline = "double"\n'
    suite = textwrap.dedent(SUITE).replace("toy.later", "toy.ops")
    suite = suite if adapters else suite.split("    @variant")[0].replace('    baseline = "torch"\n', module)
    suite = suite.replace("    def reference(self, x):\n", f"    def reference(self, x):\n        {own}\n")
    (room / "scale.py").write_text(suite.replace("import aids\n", "import aids\n" if adapters else ""))
    table = OPS.format(side="base") + "\nVARIANTS = {'double': double}\n"
    trees = [Tree(side, write(room.parents[1] / side, "base"), ("toy",)) for side in ("base", "head", "today")]
    for tree in trees:
        (tree.root / "toy/ops.py").write_text(table)
    [suite] = load_suites(room).values()
    assert compare_sources(*trees[:2], [suite]).same_sources == {"scale"}
    (trees[1].root / file).write_text(text)
    assert compare_sources(*trees[:2], [suite]).same_sources == frozenset()


def test_what_no_tree_has_is_not_the_same(room):
    [suite] = load_suites(room).values()
    trees = [Tree(side, write(room.parents[1] / side, "base"), ("toy",)) for side in ("base", "head")]
    assert compare_sources(*trees, [suite]).same_sources == frozenset()


def test_the_gate_judges_a_suites_own_variants_per_side(tmp_path):
    for name in ("base", "head"):
        project = make_project(tmp_path / name)
        write(project.root, name)
        project.write("aids.py", AIDS)
        project.write("benchmarks/scale.py", SUITE)
    base, head = tmp_path / "base", tmp_path / "head"
    (head / "toy/later.py").write_text("def double(x):\n    return x + x\n")
    (head / "toy/ops.py").write_text("def double(x):\n    return 3 * x\n")
    worker = GateWorker(Setup(base, head, ("toy",), head / "benchmarks", ("scale",), seed=1, quick=True), 60.0)
    try:
        worker.ready()
        names = ("torch", "ours", "helped", "later", "broken")
        assert {side: tuple(facts.variants) for side, facts in worker.imported["scale"].items()} == {
            "base": names,
            "head": names,
        }
        tests = dict.fromkeys(names, Test(0.05, 0.05, 5, 0.05))
        asked = GroupRequest(Group("scale", "M=4", "warm", names), tests)
        found = {verdict.key.variant: asdict(verdict) for verdict in worker.judge([asked], 2.0, print)}
    finally:
        worker.close()
    outcomes = {name: found[name]["outcome"] for name in names}
    assert outcomes["torch"] in ("same", "unsure")
    assert outcomes["later"] == "new"
    assert (outcomes["ours"], outcomes["helped"], outcomes["broken"]) == ("failed", "failed", "failed")
    assert "off by 0.5 of its norm" in found["ours"]["reason"]
    assert not found["ours"]["in_base"]
    assert found["broken"]["in_base"]
