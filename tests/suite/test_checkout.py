"""The packages under test come from the checkout and from nowhere else."""

import importlib
import sys

import pytest

from lockstep.suite.checkout import import_from

TREE = {
    "parcel/__init__.py": "from parcel.origin import TREE\n",
    "parcel/origin.py": "TREE = {tree!r}\n",
    "parcel/relative.py": "from .origin import TREE\nfrom . import origin\n",
    "parcel/absolute.py": "import parcel.origin\nTREE = parcel.origin.TREE\n",
    "parcel/lazy.py": "def tree():\n    from parcel.late import TREE\n    return TREE\n",
    "parcel/late.py": "TREE = {tree!r}\n",
    "neighbour.py": "TREE = {tree!r}\n",
}


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """Today's tree, first on the path, and a commit's."""
    for tree in ("today", "commit"):
        for name, text in TREE.items():
            path = tmp_path / tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(tree=tree))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "today"), *sys.path])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in ("parcel", "neighbour")]:
        del sys.modules[name]


def test_packages_and_their_modules_come_from_the_checkout(trees):
    import_from(trees / "commit", ["parcel"])
    assert importlib.import_module("parcel").TREE == "commit"
    assert importlib.import_module("parcel.relative").TREE == "commit"
    assert importlib.import_module("parcel.relative").origin.TREE == "commit"
    assert importlib.import_module("parcel.absolute").TREE == "commit"
    assert importlib.import_module("parcel.lazy").tree() == "commit"


def test_everything_else_is_todays(trees):
    import_from(trees / "commit", ["parcel"])
    assert importlib.import_module("neighbour").TREE == "today"


def test_a_path_put_first_later_changes_nothing(trees):
    import_from(trees / "commit", ["parcel"])
    sys.path.insert(0, str(trees / "today"))
    assert importlib.import_module("parcel").TREE == "commit"


def test_a_package_the_commit_lacks_is_missing_although_today_has_it(trees):
    (trees / "empty").mkdir()
    import_from(trees / "empty", ["parcel"])
    with pytest.raises(ModuleNotFoundError, match=r"the tree at .*empty has no parcel") as failure:
        importlib.import_module("parcel")
    assert failure.value.name == "parcel"


def test_a_module_the_commit_lacks_is_missing_although_today_has_it(trees):
    (trees / "commit" / "parcel" / "late.py").unlink()
    import_from(trees / "commit", ["parcel"])
    with pytest.raises(ModuleNotFoundError, match=r"parcel\.late"):
        importlib.import_module("parcel.lazy").tree()


def test_a_relative_checkout_stays_where_it_was(trees, monkeypatch):
    monkeypatch.chdir(trees)
    import_from(type(trees)("commit"), ["parcel"])
    monkeypatch.chdir("/")
    assert importlib.import_module("parcel").TREE == "commit"


def test_it_is_too_late_once_a_package_is_imported(trees):
    importlib.import_module("parcel")
    with pytest.raises(ImportError, match=r"parcel is already imported from .*today.*, so the checkout can no longer"):
        import_from(trees / "commit", ["parcel"])
    assert importlib.import_module("parcel").TREE == "today"
