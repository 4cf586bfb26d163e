"""A module stands on what it imports, wherever and however."""

import pytest

from lockstep.machine_code.sources import closure, digest

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
