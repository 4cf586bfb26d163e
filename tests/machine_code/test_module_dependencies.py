"""A module stands on what it imports, wherever and however."""

import pytest

from lockstep.machine_code.sources.module_dependencies import OUTSIDE, closure, digest, same_code

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
