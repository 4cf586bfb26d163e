"""A module stands on what it imports, wherever and however."""

import pytest

from lockstep.machine_code.sources.module_dependencies import OUTSIDE, closure, digest, reads_its_text, same_code

FILES = {
    "toy/__init__.py": "",
    "toy/family.py": "import torch\nfrom toy import helper\nfrom .sub import part\n",
    "toy/helper.py": "def late():\n    from toy.lazy import THING\n    return THING\n",
    "toy/lazy.py": "THING = 1\n",
    "toy/other.py": "",
    "toy/sub/__init__.py": "from . import part\n",
    "toy/sub/part.py": "from .. import deep\n",
    "toy/deep.py": "from importlib import import_module\nimport_module('toy.named')\n",
    "toy/named.py": "",
    "toy/table.json": "{}",
    "outside.py": "",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports_are_followed_within_the_packages(tree):
    found = closure(tree, ["toy"], "toy.family")
    assert set(found) == set(FILES) - {"toy/other.py", "outside.py"}


def test_a_name_made_at_run_time_stands_for_the_whole_package(tree):
    (tree / "toy/lazy.py").write_text("import importlib\nimportlib.import_module(__name__ + 'x')\n")
    assert "toy/other.py" in closure(tree, ["toy"], "toy.family")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("import json\njson.loads('{}')\n", False),
        ("def locate(x):\n    return x\n\nlocate(1)\n", False),
        ("def instantiate(x):\n    return x\n\ninstantiate(1)\n", False),
        ("import pydoc\npydoc.locate('a' + 'b')\n", True),
        ("from pydoc import locate as find\nfind('a' + 'b')\n", True),
        ("from importlib import import_module\nimport_module('pydoc').locate('a' + 'b')\n", True),
        ("import pickle\npickle.loads(b'')\n", True),
        ("from importlib import import_module as load\nload('a' + 'b')\n", True),
        ("import importlib\nlist(map(importlib.import_module, NAMES))\n", True),
        ("from hydra.utils import instantiate\ninstantiate({})\n", True),
        ("exec(TEXT, NAMES)\n", True),
        ("exec(TEXT, {'__builtins__': {}, **NAMES})\n", True),
        ("exec(TEXT, {**NAMES, '__builtins__': NAMES})\n", True),
        ("exec(TEXT, {**NAMES, '__builtins__': {'__import__': find}})\n", True),
        ("importlib.exec_module(TEXT, {**NAMES, '__builtins__': {}})\n", True),
        ("exec(TEXT, {**NAMES, '__builtins__': {}})\n", False),
        ("exec(TEXT, names := {**NAMES, '__builtins__': {}})\nNAMES = names['x']\n", False),
    ],
)
def test_only_what_imports_by_name_stands_for_the_whole_package(tree, text, whole):
    (tree / "toy/lazy.py").write_text(text)
    assert ("toy/other.py" in closure(tree, ["toy"], "toy.family")) is whole


@pytest.mark.parametrize(
    "text",
    [
        "exec('from toy import other')",
        "eval(\"__import__('toy.other')\")",
        "list(map(exec, TEXTS))",
        "run = eval\nrun(TEXT)",
        "import importlib\ngetattr(importlib, 'import_module')(NAME)",
        "import importlib\ngetattr(importlib, 'import_' + 'module')(NAME)",
        "import importlib as i\nvars(i)['import_module'](NAME)",
        "import builtins\ngetattr(builtins, A + B)(NAME)",
        "from importlib import import_module\ngetattr(import_module('importlib'), A + B)(NAME)",
        "__builtins__['__imp' + 'ort__'](NAME)",
        "from runpy import run_path as go\ngo(PATH)",
        "import sys\nsys.modules[NAME]",
        "from sys import modules\nmodules[NAME]",
        "import sys\nlist(sys.modules.values())",
        "import sys\ngetattr(sys, A + B)[NAME]",
        "__path__.append(PATH)",
        "from importlib import import_module\nimport_module('..far', __package__)",
        "from importlib import import_module\nimport_module('.other', 'toy')",
        "from importlib import import_module\nimport_module('.other', package='toy')",
        "__import__('toy', fromlist=['other'])",
        "import yaml\nyaml.load(TEXT)",
        "import torch as t\nt.load(FILE)",
        "import numpy as np\nnp.load(FILE, allow_pickle=True)",
        "import timeit\ntimeit.timeit(TEXT)",
        "import logging.config\nlogging.config.dictConfig(D)",
        "from unittest import mock\nmock.patch(TEXT)",
        "from importlib.metadata import entry_points\nentry_points(group='x')",
        # Texts of modules, read as files.
        "from pathlib import Path\nT = Path(__file__).parent.joinpath('other').with_suffix('.py').read_text()",
        "from pathlib import Path\nT = [path.read_text() for path in Path(__file__).parent.iterdir()]",
        "from pathlib import Path\nT = [path.read_text() for path in Path(__file__).parent.glob('*')]",
        "import os\nT = os.listdir(os.path.dirname(__file__))",
        "from os import listdir as ls\nT = ls(PATH)",
        "from importlib.resources import files\nT = list(files('toy').iterdir())",
    ],
)
def test_an_import_that_the_text_does_not_name_stands_for_the_whole_package(tree, text):
    (tree / "toy/lazy.py").write_text(text)
    assert "toy/other.py" in closure(tree, ["toy"], "toy.family")


def test_plain_texts_stand_for_what_they_name(tree):
    (tree / "toy/lazy.py").write_text(
        "import sys, json, os.path, ast\nfrom importlib import import_module\nfrom pathlib import Path\n"
        "HERE = Path(__file__).resolve().parent\nALL = [path.read_text() for path in HERE.glob('tables/*.json')]\n"
        "import_module('.named', __package__)\nME = sys.modules[__name__]\nsys.exit\nlist(ast.walk(ast.parse('1')))\n"
    )
    found = closure(tree, ["toy"], "toy.family")
    assert "toy/other.py" not in found
    assert OUTSIDE not in found
    assert not reads_its_text(found)


def test_a_module_is_followed_through_another_name_of_its_package(tree):
    (tree / "toy/lazy.py").write_text("import toy as t\nN = t.other.N\n")
    assert "toy/other.py" in closure(tree, ["toy"], "toy.family")


def test_a_compiled_module_may_import_anything(tree):
    (tree / "toy/lazy.py").write_text("from toy import native\n")
    assert "toy/other.py" not in closure(tree, ["toy"], "toy.family")
    (tree / "toy/native.cpython-311-x86_64-linux-gnu.so").touch()
    assert "toy/other.py" in closure(tree, ["toy"], "toy.family")


@pytest.mark.parametrize(
    "text",
    [
        "from pathlib import Path\nT = Path(__file__).read_text()",
        "from pathlib import Path\nHERE = Path(__file__)\nT = HERE.read_text()",
        "from pathlib import Path\nT = Path(__file__).resolve().read_text()",
        "PATH = __file__\nT = open(PATH).read()",
        "import toy.named\nT = open(toy.named.__file__).read()",
        "getattr(f, '__doc__')",
        "import inspect\ngetattr(inspect, 'getsource')(f)",
        "import traceback\ntraceback.extract_tb(t)",
    ],
)
def test_comments_count_where_code_may_read_them(tree, text):
    (tree / "toy/lazy.py").write_text(text)
    assert reads_its_text(closure(tree, ["toy"], "toy.family"))


@pytest.mark.parametrize(
    "text",
    [
        "from pathlib import Path\np = Path(__file__)\nwhile not (p / 'x.toml').exists():\n    p = p.parent",
        "from pathlib import Path\nimport toy\nN = (Path(toy.__file__).parent.parent / 'n').read_text()",
        "from importlib.resources import files\nN = (files('toy').parent / 'n').read_text()",
        "import inspect, toy\nfrom pathlib import Path\nN = Path(inspect.getfile(toy)).parent.parent.glob('n')",
        "import os, toy\nN = open(os.path.join(os.path.dirname(toy.__file__), os.pardir, 'n')).read()",
        "from os.path import dirname as up\nN = open(up(up(__file__)) + '/n').read()",
        "import os\nN = open(os.path.split(os.path.split(__file__)[0])[0] + '/n').read()",
        "from functools import reduce\nfrom os.path import dirname\nreduce(lambda p, f: f(p), [dirname] * 3, __file__)",
        "from pathlib import Path\nN = Path(*Path(__file__).parts[:-2], 'n').read_text()",
        "N = open(__file__.rsplit('/', 2)[0] + '/n').read()",
        "def up(path):\n    return path.parent\n\n\nfrom pathlib import Path\nN = up(up(Path(__file__)))",
        "import sys as s\ns.path.insert(0, PATH)",
        "from sys import path\npath.insert(0, PATH)",
        "import sys\nsys.meta_path.insert(0, FINDER)",
        "import site\nsite.addsitedir(PATH)",
    ],
)
def test_a_path_that_may_lead_out_of_the_packages_does(tree, text):
    (tree / "toy/lazy.py").write_text(text)
    assert OUTSIDE in closure(tree, ["toy"], "toy.family")


@pytest.mark.parametrize(
    ("walk", "outside"),
    [("for p in Path(__file__).parents:\n    p\n", True), ("next(iter(Path(__file__).parents))\n", True),
     ("Path(__file__).parents[0]\n", False)],
)  # fmt: skip
def test_a_walk_up_from_a_file_leaves_the_packages(tree, walk, outside):
    (tree / "toy/lazy.py").write_text("from pathlib import Path\n" + walk)
    assert (OUTSIDE in closure(tree, ["toy"], "toy.family")) is outside


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        ("N = open('toy/table.json').read()\n", True),
        ("from pathlib import Path\nTABLE = 'tables/h200.npz'\nN = Path(TABLE).read_bytes()\n", True),
        ("import os\nN = open(os.path.join('toy', 'table.json')).read()\n", True),
        ("from pathlib import Path\nN = Path(__file__).with_name('table.json').read_text()\n", False),
        ("KINDS = ('f16.f32', 'table of json')\n\n\ndef f(path):\n    return open(path).read()\n", False),
        ("NAME = 'table.json'\n", False),
    ],
)
def test_a_file_found_from_the_working_folder_is_not_the_packages(tree, text, outside):
    (tree / "toy/lazy.py").write_text(text)
    assert (OUTSIDE in closure(tree, ["toy"], "toy.family")) is outside


def test_a_module_that_is_not_there_stands_on_nothing(tree):
    assert closure(tree, ["toy"], "toy.absent").keys() <= {"toy/__init__.py", "toy/table.json"}
    assert closure(tree, ["none"], "none.family") == {}


def test_a_broken_module_is_still_told_apart(tree):
    before = closure(tree, ["toy"], "toy.family")
    (tree / "toy/lazy.py").write_text("def (\n")
    after = closure(tree, ["toy"], "toy.family")
    assert before.keys() == after.keys()
    assert digest(before) != digest(after)


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
    ("before", "after", "same"),
    [
        ("X = 1\n", "# words\nX = (1)\n", True),
        ("def f():\n    return 1\n", 'def f():\n    """Words."""\n\n    return 1\n', True),
        ("X = 1\n", "X = 2\n", False),
        ("def f(a, b): pass\n", "def f(b, a): pass\n", False),
        ("f('words')\n", "f('other words')\n", False),
        ("def (\n", "class (\n", False),
    ],
)
def test_comments_and_layout_are_no_code(before, after, same):
    assert same_code({"a.py": before.encode()}, {"a.py": after.encode()}) is same


def test_other_files_count_byte_by_byte():
    assert not same_code({"a.txt": b"# x"}, {"a.txt": b"# y"})
    assert not same_code({"a.py": b""}, {"a.py": b"", "b.py": b""})
