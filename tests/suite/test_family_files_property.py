"""No planted change of a family is overlooked where files are compared, and comments change no family.

A part of the examples runs with all tests. To run that many:
``LOCKSTEP_FILE_EXAMPLES=2000 pytest tests/suite/test_family_files_property.py``.
"""

import itertools
import os
import shutil
import sys

import pytest
from hypothesis import given, settings
from made_suites import ONE, make_suite
from planted import Planted, answers, lay_out, planted

from lockstep.gate.unchanged import compare_sources
from lockstep.suite.commit_sources import Tree
from lockstep.suite.discovery import load_suites

EXAMPLES = int(os.environ.get("LOCKSTEP_FILE_EXAMPLES", "60"))
_number = itertools.count()


OWN = """
from lockstep import Cost, Suite, grid, variant


class Own(Suite):
    baseline = "all_of_them"
    cases = quick = grid(M=1)
    draw = reference = cost = lambda self: None

    @variant
    def all_of_them(self):
        from {package}.work import VARIANTS

        return [function() for function in VARIANTS.values()]
"""


def own_suite(room, package):
    """A suite whose own variant calls all of the example's."""
    folder = room / f"suites_{room.name}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "own.py").write_text(OWN.format(package=package))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", sys.path.copy())
        [suite] = load_suites(folder).values()
    return suite


def judged(folder, example: Planted):
    """Return the suites whose files are the same, and what each version really answers."""
    room = folder / str(next(_number))
    roots = room / "base", room / "head"
    for root, files in zip(roots, (example.base, example.head), strict=True):
        lay_out(root, files)
    home = roots[1] / "benchmarks"  # today's variants are read beside the suite
    suite = make_suite(family="work", module=f"{example.package}.work", cases=ONE, quick=ONE, baseline="a", home=home)
    try:
        trees = [Tree(root.name, root, example.packages) for root in roots]
        found = compare_sources(*trees, [suite, own_suite(room, example.package)])
        return found.same_sources, answers(roots[0], example), answers(roots[1], example)
    finally:
        shutil.rmtree(room)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("planted")


def test_no_changed_family_has_the_same_files(folder):
    changed = []

    @settings(max_examples=EXAMPLES, database=None)
    @given(planted())
    def check(example):
        same, before, after = judged(folder, example)
        changed.append(before != after)
        assert before == after or not same, (example.feature, same)

    check()
    assert sum(changed) >= 0.9 * len(changed)  # the planted changes are changes


def test_comments_change_no_family(folder):
    same = []

    @settings(max_examples=max(20, EXAMPLES // 10), database=None)
    @given(planted(commented=True))
    def check(example):
        found, before, after = judged(folder, example)
        assert before == after
        same.append(found == {"work", "own"})

    check()
    assert sum(same) >= 0.95 * len(same)
