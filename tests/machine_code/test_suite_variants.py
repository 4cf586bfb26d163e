"""Variants that a suite defines itself are traced like the code under test."""

import sys
import textwrap

import pytest

from lockstep.machine_code.differences.compare import compare
from lockstep.machine_code.model import CaseKey
from lockstep.machine_code.targets import Target
from lockstep.suite.commit_sources import Tree
from lockstep.suite.discovery import load_suites

SUITE = """
    from lockstep import Cost, Suite, grid, variant


    class Own(Suite):
        baseline = "torch"
        cases = quick = grid(M=[4])

        def draw(self, new, M):
            return {"x": new.normal(M, M)}

        def reference(self, x):
            return 2 * x.double()

        def cost(self, M):
            return Cost(M * M, 8 * M * M)

        @variant
        def torch(self, x):
            return 2 * x

        @variant
        def ours(self, x):
            from toy.ops import double

            return double(x)

        @variant
        def again(self, x):
            from toy.ops import double

            return double(x)

        @variant
        def reads(self, x):
            import toy

            with open(toy.__file__ + ".txt") as file:
                return x * len(file.read())

        @variant
        def later(self, x):
            from toy.later import double

            return double(x)
"""


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """Status of each variant between a tree and another, which has these files changed."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "today" / f"suites_{tmp_path.name}"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "own.py").write_text(textwrap.dedent(SUITE))
    [suite] = load_suites(folder).values()

    def compare_with(changes):
        trees = []
        for side, more in (("base", {}), ("head", changes)):
            files = {"__init__.py": "", "__init__.py.txt": "ab", "ops.py": "def double(x):\n    return 2 * x\n"} | more
            for name, text in files.items():
                path = tmp_path / side / "toy" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            trees.append(Tree(side, tmp_path / side, ("toy",)))
        found = compare(*trees, [suite], Target.parse("sm_90"))
        keys = {name: CaseKey("own", name, "M=4") for name in suite.variants()}
        return {name: found.status(key) for name, key in keys.items()}

    return compare_with


def test_the_code_that_a_variant_imports_is_compared(compared):
    changed = {"ops.py": "def double(x):\n    return x + x\n", "later.py": "def double(x):\n    return 2 * x\n"}
    assert compared(changed) == {
        "torch": "same",
        "ours": "changed",
        "again": "changed",
        "reads": "same",
        "later": "new",
    }


def test_a_file_that_a_variant_reads_is_compared(compared):
    assert compared({"__init__.py.txt": "abc"})["reads"] == "changed"


def test_a_package_that_does_not_import_proves_nothing_of_what_it_had_imported(compared):
    """Python keeps the modules that were imported before the one that failed."""
    found = compared({"__init__.py": "from toy.ops import double\nfrom toy import broken\n", "broken.py": "def (\n"})
    assert (found["torch"], found["ours"], found["again"]) == ("same", "unknown", "unknown")
