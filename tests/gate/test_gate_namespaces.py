"""Two versions of a package in one process: every way of importing finds its own tree, and Triton takes both."""

import importlib
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
from fakes import FakeDevice
from made_suites import make_suite

from lockstep.gate.measuring.comparer import Comparer
from lockstep.gate.measuring.pairing import QUICK
from lockstep.gate.namespaces import Conflict, Sides
from lockstep.suite.definition import SuiteError
from lockstep.suite.variants import NotInCommit

#: The repository and its tests.
PYTHONPATH = f"{Path(__file__).parents[2]}:{Path(__file__).parents[1]}"

TREE = {
    "parcel/__init__.py": "from parcel.origin import TREE\n",
    "parcel/origin.py": "TREE = {tree!r}\n",
    "parcel/relative.py": "from .origin import TREE\nfrom . import origin\n",
    "parcel/absolute.py": "import parcel.origin\nTREE = parcel.origin.TREE\n",
    "parcel/late.py": "TREE = {tree!r}\n",
    "parcel/later.py": "TREE = {tree!r}\n",
    "parcel/kinds.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass Kind:\n    tree: str = {tree!r}\n",
    "parcel/work.py": """
        import importlib
        import sys

        from parcel import kinds
        from parcel.origin import TREE


        def where(x):
            # {tree}
            from parcel.late import TREE as inside
            import parcel.relative

            later = importlib.import_module("parcel.later")
            sibling = importlib.import_module(".absolute", "parcel")
            return {{TREE, inside, parcel.relative.TREE, later.TREE, sibling.TREE, kinds.Kind().tree,
                    sys.modules["parcel"].TREE}}


        VARIANTS = {{"where": where}}
    """,
}


def write(root, tree):
    for name, text in TREE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text.format(tree=tree)))
    return root


@pytest.fixture
def sides(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    # A third tree on the path: it must never be taken.
    monkeypatch.setattr(sys, "path", [str(write(tmp_path / "today", "today")), *sys.path])
    yield Sides(["parcel"], base=write(tmp_path / "one", "base"), head=write(tmp_path / "two", "head"))
    for name in [name for name in sys.modules if name.split(".")[0] == "parcel"]:
        del sys.modules[name]


def suite(family="work"):
    return make_suite(family=family, module=f"parcel.{family}", baseline="where")


def test_every_import_resolves_to_its_own_tree(sides):
    where = {side: sides.load_family(suite(), side).variants["where"] for side in ("base", "head")}
    # In turn and back again: what one side imports late must not be found by the other.
    for side in ("base", "head", "base", "head"):
        with sides.active(side):
            assert where[side](None) == {side}
    assert "parcel" not in sys.modules


def test_a_side_within_a_side_gives_way_and_comes_back(sides):
    with sides.active("base"):
        assert importlib.import_module("parcel").TREE == "base"
        with sides.active("head"):
            assert importlib.import_module("parcel.late").TREE == "head"
        assert importlib.import_module("parcel.late").TREE == "base"
        with pytest.raises(ZeroDivisionError), sides.active("head"):
            _ = 1 / 0
        assert sys.modules["parcel"].TREE == "base"


def test_modules_that_are_put_in_place_exchanged_or_removed_are_each_sides_own(sides):
    made, other = ModuleType("parcel.made"), ModuleType("parcel.other")
    with sides.active("base"):
        importlib.import_module("parcel.late")
        sys.modules["parcel.made"] = made
    assert "parcel.made" not in sys.modules
    with sides.active("head"):
        assert "parcel.made" not in sys.modules
    with sides.active("base"):
        assert sys.modules["parcel.made"] is made
        del sys.modules["parcel.made"]
        sys.modules["parcel.other"] = other
    with sides.active("base"):
        assert sys.modules["parcel.other"] is other
        assert "parcel.made" not in sys.modules
        del sys.modules["parcel.other"]
    with sides.active("base"):
        assert {name for name in sys.modules if name.startswith("parcel")} >= {"parcel", "parcel.late"}
        assert "parcel.other" not in sys.modules


def test_names_sources_and_pickles_are_each_sides_own(sides):
    kinds = {}
    for side in ("base", "head"):
        function = sides.load_family(suite(), side).variants["where"]
        assert (function.__module__, f"# {side}" in inspect.getsource(function)) == ("parcel.work", True)
        with sides.active(side):
            kinds[side] = pickle.loads(pickle.dumps(importlib.import_module("parcel.kinds").Kind()))
    assert kinds["base"].tree == "base"
    assert kinds["head"].tree == "head"
    assert type(kinds["base"]) is not type(kinds["head"])


def test_without_a_side_the_packages_are_not_to_be_had(sides):
    with pytest.raises(ModuleNotFoundError, match="parcel is under test: import it only within"):
        importlib.import_module("parcel")
    sides.load_family(suite(), "base")
    with pytest.raises(ModuleNotFoundError, match="parcel"):
        importlib.import_module("parcel.work")


def test_what_a_side_lacks_is_missing_and_not_taken_from_the_other(sides):
    (sides.roots["base"] / "parcel/extra.py").write_text("VARIANTS = {'x': len}\n")
    assert sides.load_family(suite("extra"), "base").variants["x"]("abc") == 3
    with pytest.raises(NotInCommit, match=r"this commit has no parcel\.extra"):
        sides.load_family(suite("extra"), "head")
    (sides.roots["head"] / "parcel/extra.py").write_text("VARIANTS = 5\n")
    importlib.invalidate_caches()
    with pytest.raises(SuiteError, match="VARIANTS must be a dict"):
        sides.load_family(suite("extra"), "head")


def test_the_place_of_a_variant_is_that_of_its_function(sides):
    (sides.roots["head"] / "parcel/extra.py").write_text(
        "from functools import cache, partial\n\n\n@cache\ndef work(x, n):\n    return x\n\n\n"
        "VARIANTS = {'plain': work, 'partial': partial(work, n=1), 'foreign': len}\n"
    )
    found = Comparer(sides, FakeDevice(), QUICK, 1, print).families.load(suite("extra"), "head").variants
    assert found == {"plain": ("parcel/extra.py", 4), "partial": ("parcel/extra.py", 4), "foreign": ("", 0)}


def test_a_module_from_elsewhere_is_a_conflict(sides, tmp_path):
    foreign = tmp_path / "foreign.py"
    foreign.write_text("VARIANTS = {}\n")
    (sides.roots["head"] / "parcel/work.py").write_text(
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('parcel.native', {str(foreign)!r})\n"
        "sys.modules['parcel.native'] = importlib.util.module_from_spec(spec)\n"
        "VARIANTS = {}\n"
    )
    with pytest.raises(Conflict, match=r"module parcel\.native of head was imported from .*foreign\.py, which is"):
        sides.load_family(suite(), "head")


def test_a_package_that_is_imported_already_is_refused(tmp_path):
    with pytest.raises(ImportError, match="is already imported, from "):
        Sides(["lockstep"], base=tmp_path, head=tmp_path)


KERNEL = """
    import triton
    import triton.language as tl

    from parcel.scale import SCALE, scaled

    BLOCK = tl.constexpr({block})


    @triton.jit
    def kernel(x, out):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, scaled(tl.load(x + at)) + SCALE)


    def run(x):
        out = x.new_empty({block})
        kernel[(1,)](x, out)
        return out


    VARIANTS = {{"run": run}}
"""

SCALE = """
    import triton
    import triton.language as tl

    SCALE = tl.constexpr({scale})


    @triton.jit
    def scaled(x):
        return x * SCALE
"""

COMPILE = """
    import sys
    from pathlib import Path

    import torch

    from lockstep import Suite
    from compiling import intercept
    from lockstep.gate.namespaces import Sides

    sides = Sides(["parcel"], base=Path(sys.argv[1]), head=Path(sys.argv[2]))

    class Work(Suite):
        module = "parcel.work"
        cases = quick = ()
        baseline = "run"
        draw = reference = cost = lambda self: None

    suite = Work()
    families = {side: sides.load_family(suite, side) for side in ("base", "head")}
    with intercept(90) as compiled:
        for side in ("base", "head", "base"):
            with sides.active(side):
                families[side].variants["run"](torch.empty(512, device="meta"))
    for kernel in compiled:
        print(kernel.metadata.name, kernel.asm["ttir"].count("3.0"), kernel.asm["ttir"].count("5.0"),
              "256x" in kernel.asm["ttir"], "512x" in kernel.asm["ttir"])
"""


def test_triton_compiles_both_sides_with_their_own_globals_and_helpers(tmp_path):
    """In a process of its own: tests run Triton's interpreter, which compiles nothing."""
    for side, scale, block in (("base", 3.0, 256), ("head", 5.0, 512)):
        folder = tmp_path / side / "parcel"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "work.py").write_text(textwrap.dedent(KERNEL.format(block=block)))
        (folder / "scale.py").write_text(textwrap.dedent(SCALE.format(scale=scale)))
    script = tmp_path / "compile.py"
    script.write_text(textwrap.dedent(COMPILE))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {
        "PYTHONPATH": PYTHONPATH,
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, script, tmp_path / "base", tmp_path / "head"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["kernel", "kernel"]
    (base_3, base_5, base_256, base_512), (head_3, head_5, head_256, head_512) = (line[1:] for line in lines)
    assert (int(base_3) > 0, base_5, base_256, base_512) == (True, "0", "True", "False")
    assert (head_3, int(head_5) > 0, head_256, head_512) == ("0", True, "False", "True")
