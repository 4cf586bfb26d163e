"""Equal files leave a family unchanged, and no variant of a family with a changed file is unchanged by its text."""

import sys
import textwrap

import pytest
from planted import lay_out

from lockstep.gate.unchanged import compare_sources
from lockstep.machine_code.cache import Cache
from lockstep.machine_code.differences.compare import compare
from lockstep.machine_code.model import CaseKey
from lockstep.machine_code.targets import Target
from lockstep.suite.commit_sources import Tree
from lockstep.suite.discovery import load_suites

SUITE = """
    from lockstep import Cost, Suite, grid


    class Work(Suite):
        module = "toy.work"
        baseline = "a0"
        cases = quick = grid(M=[4])

        def draw(self, new, M):
            return {"x": new.normal(M, 4, dtype="float32")}

        def reference(self, x):
            return 3 * x

        def cost(self, M):
            return Cost(M, M)
"""

SHAPES = """
    class Counter:
        n = 0

        def bump(self, by):
            self.n = by


    COUNTER = Counter()
    STATE = {}


    def put(state, value):
        state["n"] = value
"""

#: Ways in which a variant may leave a number that another variant reads.
MUTATIONS = (
    "COUNTER.bump({})",
    "put(STATE, {})",
    "s = STATE; s['n'] = {}",
    "STATE['n'] = {}",
)
BEFORE = (1, 1, 1, 1)


def family(numbers, order="ab"):
    """A module with a pair of variants for each number: ``a`` leaves the number by a mutation, and ``b`` reads it."""
    texts, entries = [], []
    for i, (mutation, number) in enumerate(zip(MUTATIONS, numbers, strict=True)):
        texts.append(f"from toy.shapes{i} import COUNTER as COUNTER{i}, STATE as STATE{i}, put\n")
        leave = mutation.format(number).replace("COUNTER", f"COUNTER{i}").replace("STATE", f"STATE{i}")
        texts.append(f"def a{i}(x):\n    {leave}\n    return x * 3\n")
        texts.append(f"def b{i}(x):\n    return x * (COUNTER{i}.n + STATE{i}.get('n', 0) + 5)\n")
        entries += [f"'{name}{i}': {name}{i}" for name in order]
    return "\n".join([*texts, f"VARIANTS = {{{', '.join(entries)}}}\n"])


def tree(root, work, **files):
    shapes = {f"toy/shapes{i}.py": SHAPES for i in range(len(MUTATIONS))}
    lay_out(root, {"toy/__init__.py": "", **shapes, "toy/work.py": work, "toy/apart.py": "", **files})
    return Tree(root.name, root, ("toy",))


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """The suite in a folder of another name for each test: Python imports a name once."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = f"suites_{tmp_path.name}"
    # Today's variants are read beside the suite.
    tree(tmp_path / "today", family(BEFORE), **{f"{folder}/__init__.py": "", f"{folder}/work.py": SUITE})
    [suite] = load_suites(tmp_path / "today" / folder).values()
    yield suite
    for name in [name for name in sys.modules if name.partition(".")[0] == folder]:
        del sys.modules[name]


def same_sources(base, head, suite):
    return compare_sources(base, head, [suite]).same_sources


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_variant_is_not_the_same_by_its_text_if_another_changes_what_it_reads(suite, tmp_path, order):
    base = tree(tmp_path / "base", family(BEFORE, order))
    assert same_sources(base, tree(tmp_path / "copy", family(BEFORE, order)), suite) == {"work"}
    for i, mutation in enumerate(MUTATIONS):
        numbers = [*BEFORE[:i], 2, *BEFORE[i + 1 :]]
        assert same_sources(base, tree(tmp_path / f"head{i}", family(numbers, order)), suite) == frozenset(), mutation


def test_a_trace_shows_what_an_earlier_variant_left(suite, tmp_path):
    base, head = tree(tmp_path / "base", family(BEFORE)), tree(tmp_path / "head", family((2, 2, 2, 2)))
    compared = compare(base, head, [suite], Target.parse("sm_90"), cache=Cache(tmp_path / "cache"))
    status = {name: compared.status(CaseKey("work", name, "M=4")) for name in suite.variants()}
    for i, mutation in enumerate(MUTATIONS):
        assert (status[f"a{i}"], status[f"b{i}"]) == ("same", "changed"), mutation


def test_a_family_is_the_same_until_a_file_that_it_imports_differs(suite, tmp_path):
    base, head = tree(tmp_path / "base", family(BEFORE)), tree(tmp_path / "head", "# Words.\n" + family(BEFORE))
    assert same_sources(base, head, suite) == {"work"}
    (head.root / "toy/apart.py").write_text("N = 1\n")
    assert same_sources(base, head, suite) == {"work"}
    (head.root / "toy/shapes3.py").write_text(textwrap.dedent(SHAPES) + "N = 1\n")
    assert same_sources(base, head, suite) == frozenset()
