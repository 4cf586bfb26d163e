"""A family depends on the modules that it may import, wherever and however, and on all files that are not Python."""

import pytest
from made_suites import make_suite

from lockstep.suite.family_files import digest, family_files, same_files

FILES = {
    "toy/__init__.py": "",
    "toy/family.py": "import torch\nfrom toy import helper\nfrom .sub import part\n",
    "toy/helper.py": "def late():\n    from toy.lazy import THING\n    return THING\n",
    "toy/lazy.py": "THING = 1\n",
    "toy/other.py": "",
    "toy/sub/__init__.py": "from . import part\n",
    "toy/sub/part.py": "from .. import deep\n",
    "toy/sub/apart.py": "",
    "toy/deep.py": "from importlib import import_module\nimport_module('toy.named')\n",
    "toy/named.py": "",
    "toy/table.json": "{}",
    "outside.py": "",
}


def lay_out(root, **changed):
    for name, text in (FILES | changed).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def tree(tmp_path):
    return lay_out(tmp_path / "base")


def files_of(root, module="toy.family", packages=("toy",)):
    return family_files(root, packages, make_suite(module=module, home=root / "benchmarks"))


def same(base, head):
    return same_files(base, head, ("toy",), make_suite(module="toy.family", home=head / "benchmarks"))


def test_imports_are_followed_within_the_packages(tree):
    assert set(files_of(tree).files) == set(FILES) - {"toy/other.py", "toy/sub/apart.py", "outside.py"}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("import json\njson.loads('{}')\n", False),
        (
            "import sys, importlib.util\nsys.exit\nimportlib.util.find_spec('triton')\n",
            False,
        ),
        ("from importlib import import_module\nimport_module('toy.named')\n", False),
        ("from importlib import import_module as load\nload('a' + 'b')\n", True),
        ("import importlib\nimportlib.import_module(__name__ + 'x')\n", True),
        ("import importlib\nlist(map(importlib.import_module, NAMES))\n", True),
        ("from importlib import import_module\nimport_module('..far', __package__)\n", True),
        ("__import__('toy', fromlist=['other'])\n", True),
        ("import importlib\ngetattr(importlib, 'import_' + 'module')(NAME)\n", True),
        ("import importlib as i\nvars(i)['import_module'](NAME)\n", True),
        ("import builtins\ngetattr(builtins, A + B)(NAME)\n", True),
        ("__builtins__['__imp' + 'ort__'](NAME)\n", True),
        ("from importlib import import_module\ngetattr(import_module('importlib'), A + B)(NAME)\n", True),
        ("from runpy import run_path as go\ngo(PATH)\n", True),
        ("import pickle\npickle.loads(b'')\n", True),
        ("import sys\nsys.modules[NAME]\n", True),
        ("from sys import modules\nmodules[NAME]\n", True),
        ("import sys\ngetattr(sys, A + B)[NAME]\n", True),
        ("import sys as s\ns.path.insert(0, PATH)\n", True),
        ("__path__.append(PATH)\n", True),
        ("exec('from toy import other')\n", True),
        ("run = eval\nrun(TEXT)\n", True),
        ("exec(TEXT, NAMES)\n", True),
        ("FunctionType(compile(TEXT, '', 'exec'), NAMES)()\n", True),
        ("FunctionType(compile(TEXT, '', MODE), NAMES)()\n", True),
        ("run = compile\nrun(TEXT, '', 'eval')\n", True),
        ("FunctionType(compile(TEXT, '', 'eval'), NAMES)()\n", False),
        ("model.eval()\nre.compile('a')\ntorch.compile(model)\n", False),
    ],
)
def test_an_import_that_the_text_does_not_name_stands_for_all_modules(tree, text, whole):
    (tree / "toy/lazy.py").write_text(text)
    assert ("toy/other.py" in files_of(tree).files) is whole


@pytest.mark.parametrize(
    "text",
    ["import toy as t\nN = t.other.N\n", "import toy.named\nN = toy.other.N\n", "from toy import *\nN = other.N\n"],
)
def test_a_package_with_a_name_stands_for_all_its_modules(tree, text):
    (tree / "toy/lazy.py").write_text(text)
    assert "toy/other.py" in files_of(tree).files


def test_a_part_of_a_package_with_a_name_stands_for_its_own_modules(tree):
    (tree / "toy/lazy.py").write_text("from toy import sub\nN = sub.apart.N\n")
    found = files_of(tree).files
    assert "toy/sub/apart.py" in found
    assert "toy/other.py" not in found


@pytest.mark.parametrize("text", ["'toy.other:run'", "'toy.other.run'", "['other']"])
def test_a_string_that_names_a_module_counts_as_an_import(tree, text):
    (tree / "toy/__init__.py").write_text(f"import lazy_loader\nlazy_loader.attach(__name__, {text})\n")
    assert "toy/other.py" in files_of(tree).files


def test_a_compiled_module_may_import_anything(tree):
    assert "toy/other.py" not in files_of(tree).files
    (tree / "toy/native.cpython-311-x86_64-linux-gnu.so").touch()
    assert "toy/other.py" in files_of(tree).files


def test_a_module_that_is_not_there_is_lacking(tree):
    assert files_of(tree, "toy.absent").lacking == ("toy.absent",)
    assert files_of(tree, "none.family", ("none",)).lacking == ("none.family",)
    suite = make_suite(module="toy.absent", home=tree / "benchmarks")
    assert not same_files(tree, tree, ("toy",), suite), "nothing shows what would run"


def test_a_digest_tells_names_and_contents_apart():
    digests = {
        digest({"a": b"bc"}),
        digest({"ab": b"c"}),
        digest({"a": b"b", "c": b""}),
        digest("a", "bc"),
        digest("abc"),
    }
    assert len(digests) == 5


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ("X = 1\n", "# words\nX = (1)\n", True),
        ("def f():\n    return 1\n", 'def f():\n    """Words."""\n\n    return 1\n', True),
        ("X = 1\n", "X = 2\n", False),
        ("def f(a, b): pass\n", "def f(b, a): pass\n", False),
        ("f('words')\n", "f('other words')\n", False),
        ("def (\n", "class (\n", False),
    ],
)
def test_comments_and_layout_are_no_code(tmp_path, before, after, equal):
    base, head = (lay_out(tmp_path / side, **{"toy/lazy.py": text}) for side, text in (("a", before), ("b", after)))
    assert same(base, head) is equal


@pytest.mark.parametrize(
    "reader",
    [
        "f.__doc__",
        "getattr(f, '__doc__')",
        "import inspect\ngetattr(inspect, 'getsource')(f)",
        "from inspect import getcomments as g",
        "f.__code__.co_firstlineno",
    ],
)
def test_comments_count_where_a_module_may_read_them(tmp_path, reader):
    base = lay_out(tmp_path / "a", **{"toy/named.py": reader})
    head = lay_out(tmp_path / "b", **{"toy/named.py": reader, "toy/lazy.py": "# words\nTHING = 1\n"})
    assert not same(base, head)


def test_other_files_count_byte_by_byte(tmp_path):
    base = lay_out(tmp_path / "a")
    assert not same(base, lay_out(tmp_path / "b", **{"toy/table.json": "{ }"}))
    assert not same(base, lay_out(tmp_path / "c", **{"toy/new.txt": ""}))
    head = lay_out(tmp_path / "d")
    (head / "toy/__pycache__").mkdir()
    (head / "toy/__pycache__/lazy.cpython-311.pyc").touch()
    assert same(base, head)


def test_where_a_link_leads_counts(tmp_path):
    trees = [lay_out(tmp_path / side) for side in "ab"]
    for tree, target in zip(trees, ("sub", "."), strict=True):
        (tree / "toy/link").symlink_to(target)
    assert not same(*trees)
