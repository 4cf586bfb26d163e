"""No change is overlooked by a proof from the sources, and comments disprove nothing.

A part of the examples runs with all tests. All of them: ``LOCKSTEP_PROOF_EXAMPLES=2000 pytest tests/test_proof_property.py``.
"""

import itertools
import os
import shutil

import pytest
from hypothesis import given, settings
from planted import FEATURES, Planted, answers, lay_out, planted

from lockstep.gate.proof import prove
from lockstep.machine_code import Tree
from lockstep.suite import Case, Suite

EXAMPLES = int(os.environ.get("LOCKSTEP_PROOF_EXAMPLES", "60"))
_number = itertools.count()


def judged(folder, example: Planted):
    """Variants that are proved, and what each version really answers."""
    room = folder / str(next(_number))
    roots = room / "base", room / "head"
    for root, files in zip(roots, (example.base, example.head), strict=True):
        lay_out(root, files)
    suite = Suite(
        "work", (Case(M=1),), (Case(M=1),), inputs=dict, reference=dict, flops=float, bytes=float, baseline="a",
        package=example.package,
    )  # fmt: skip
    object.__setattr__(suite, "home", roots[1] / "benchmarks")  # today's variants are read beside the suite
    try:
        trees = [Tree(root.name, root, example.packages) for root in roots]
        proof = prove(*trees, [suite], {"device": "cpu"}, lambda line: None)
        proved = {name for name in example.variants if ("work", name) in proof.unreached}
        return proved, answers(roots[0], example), answers(roots[1], example)
    finally:
        shutil.rmtree(room)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("planted")


def test_no_changed_variant_is_proved(folder):
    changed = []

    @settings(max_examples=EXAMPLES, database=None)
    @given(planted())
    def check(example):
        proved, before, after = judged(folder, example)
        different = {name for name in before if before[name] != after[name]}
        changed.append(len(different))
        assert not different & proved, (example.feature, different & proved)

    check()
    assert sum(map(bool, changed)) >= 0.9 * len(changed)  # the planted changes are changes


def test_comments_disprove_nothing(folder):
    proved = []

    @settings(max_examples=max(20, EXAMPLES // 10), database=None)
    @given(planted(commented=True))
    def check(example):
        found, before, after = judged(folder, example)
        assert before == after
        proved.extend(name in found for name in example.variants)

    check()
    assert sum(proved) >= 0.95 * len(proved)


