"""What a change of the sources can have touched, variant by variant."""

import textwrap
from pathlib import Path

import pytest
from made_suites import ONE, make_suite

from lockstep.gate.proof.proof import prove
from lockstep.gate.proof.reachable_code import Sources, Unreadable
from lockstep.machine_code import Tree
from lockstep.machine_code.sources.module_dependencies import closure

FILES = {
    "toy/__init__.py": "",
    "toy/work.py": '''
        """Words."""
        import functools
        import torch
        from toy import helpers
        from toy.shapes import TILE as SIZE

        FACTOR = 2


        @functools.cache
        def fast(x):
            """Words."""
            return helpers.scale(x) * FACTOR


        def slow(x):
            return x + SIZE


        def apart(x):
            return x


        def packed(w):
            return {"w": w}


        VARIANTS = {"fast": fast, "slow": slow, "apart": apart}
        PREPARE = {"apart": packed}
    ''',
    "toy/helpers.py": """
        def scale(x):
            return deeper(x)


        def deeper(x):
            return x * 3


        def unused(x):
            return x
    """,
    "toy/shapes.py": "TILE = 8\nOTHER = 9\n",
}
VARIANTS = ("fast", "slow", "apart")


def reach(files, family, variant):
    """``Sources.reach``, or ``None`` if the sources do not show what the variant reaches."""
    try:
        return Sources(files, family).reach(variant)
    except Unreadable:
        return None


def reached(variant, **changes):
    """What a variant reaches after replacing texts: ``file=(old, new)``."""
    files = {}
    for path, text in FILES.items():
        text = textwrap.dedent(text)
        old, new = changes.get(Path(path).stem, ("", ""))
        assert old in text
        files[path] = (text.replace(old, new) if old else text).encode()
    return reach(files, "toy/work", variant)


@pytest.mark.parametrize(
    ("changes", "touched"),
    [
        ({}, set()),
        ({"work": ("Words.", "Other words.")}, set()),
        ({"work": ("import torch", "import torch  # so\n\n")}, set()),
        ({"helpers": ("return x * 3", "return x * 4")}, {"fast"}),
        ({"helpers": ("def unused(x):\n    return x", "def unused(x):\n    return 2 * x")}, set()),
        ({"work": ("FACTOR = 2", "FACTOR = 3")}, {"fast"}),
        ({"shapes": ("TILE = 8", "TILE = 16")}, {"slow"}),
        ({"shapes": ("OTHER = 9", "OTHER = 10")}, set()),
        ({"work": ("from toy.shapes import TILE as SIZE", "from toy.shapes import OTHER as SIZE")}, {"slow"}),
        ({"work": ("return x\n", "return x + 0\n")}, {"apart"}),
        ({"work": ('{"w": w}', '{"w": w.t()}')}, {"apart"}),
        ({"work": ('"slow": slow', '"slow": fast')}, {"slow"}),
        ({"work": ("@functools.cache", "@functools.lru_cache(None)")}, {"fast"}),
        ({"helpers": ("return x\n", "return x + 1\n")}, set()),
        # A text that nothing looks up is no name, and an attribute of a module from outside is none of ours.
        ({"helpers": ("return x * 3", "return print('slow', x)")}, {"fast"}),
        ({"work": ("return x\n", "return torch.slow(x)\n")}, {"apart"}),
        # What runs at import may do anything to anything.
        ({"helpers": ("def unused", "print(deeper)\n\n\ndef unused")}, set(VARIANTS)),
        ({"shapes": ("OTHER = 9", "OTHER = len('12')")}, set(VARIANTS)),
        ({"helpers": ("def unused", "@register\ndef unused")}, set(VARIANTS)),
        ({"helpers": ("def unused", "scale.kind = 2\n\n\ndef unused")}, set(VARIANTS)),
        ({"helpers": ("def unused(x)", "def unused(x=print())")}, set(VARIANTS)),
        ({"helpers": ("def unused(x)", "def unused(*, x=print())")}, set(VARIANTS)),
        ({"helpers": ("def unused", "class Unused:\n    x = print()\n\n\ndef unused")}, set(VARIANTS)),
        ({"helpers": ("def unused", "class Unused(scale(int)):\n    pass\n\n\ndef unused")}, set(VARIANTS)),
        ({"helpers": ("def unused", "class Unused(kind=scale):\n    pass\n\n\ndef unused")}, set(VARIANTS)),
        ({"shapes": ("OTHER = 9", "OTHER: int = len('12')")}, set(VARIANTS)),
        # A name, a word, or a class that is not used does nothing.
        ({"shapes": ("OTHER = 9", "OTHER: int = 9")}, set()),
        ({"shapes": ("OTHER = 9", "OTHER: int")}, set()),
        ({"helpers": ("def unused(x)", "'words'\n\n\ndef unused(x=1, *, y, z=2)")}, set()),
        (
            {
                "helpers": (
                    "def unused",
                    "class Unused(int):\n    x: int = 1\n\n    def y(self):\n        print()\n\n\ndef unused",
                )
            },
            set(),
        ),
        ({"helpers": ("return x * 3", "return abs(x).real")}, {"fast"}),
    ],
)
def test_a_change_touches_those_that_reach_it(changes, touched):
    assert {name for name in VARIANTS if reached(name) != reached(name, **changes)} == touched
    assert all(reached(name) for name in VARIANTS)


def test_looking_others_up_in_the_table_reaches_them_all():
    """A dispatcher that goes by name calls any of them."""
    dispatch = ("def apart(x):\n    return x", "def apart(x):\n    return VARIANTS[choice(x)](x)")
    files = {path: textwrap.dedent(text) for path, text in FILES.items()}
    assert dispatch[0] in files["toy/work.py"]
    files["toy/work.py"] = files["toy/work.py"].replace(*dispatch)
    before = {path: text.encode() for path, text in files.items()}
    after = {**before, "toy/helpers.py": before["toy/helpers.py"].replace(b"x * 3", b"x * 4")}
    assert reach(before, "toy/work", "apart") != reach(after, "toy/work", "apart")
    assert reach(before, "toy/work", "slow") == reach(after, "toy/work", "slow")


@pytest.mark.parametrize(
    "hidden",
    [
        "eval('1')",
        "globals()['x']",
        "getattr(torch, x)",
        "importlib.import_module(x)",
        "setattr(torch, 'x', 1)",
        "toy.__dict__['x']",
        "sys.modules['toy']",
        "list(map(getattr, [x], ['T']))",
        "getattr(toy, '__dict__')['x']",
        "(lambda load: load(x))(importlib.import_module)",
        "operator.attrgetter('a' + 'b')(toy)",
        "(lambda get: get('a' + 'b')(toy))(operator.attrgetter)",
        "list(map(setattr, [toy], ['x'], [1]))",
        "(lambda put: put(toy, x, 1))(setattr)",
        "('{0.' + x + '}').format(toy)",
        "x.format_map({'toy': toy})",
        "string.Formatter().get_field(x, [toy], {})",
    ],
)
def test_names_made_up_at_run_time_prove_nothing(hidden):
    assert reached("apart", helpers=("return x * 3", f"return {hidden}")) is None
    assert reached("apart", work=("from toy import helpers", "from toy.helpers import *")) is None
    assert reached("apart", helpers=("return x * 3", "return getattr(x, 'T')")) is not None
    assert reached("apart", helpers=("return x * 3", "return (")) is None


@pytest.mark.parametrize(
    "module",
    [
        "timeit",
        "logging.config",
        "xmlrpc.server",
        "unittest.mock",
        "cProfile",
        "doctest",
        "rlcompleter",
        "pdb",
        "trace",
    ],
)
def test_a_module_that_may_evaluate_texts_proves_nothing(module):
    parent, _, last = module.rpartition(".")
    for statement in (f"import {module}", f"from {parent} import {last}" if parent else f"from {module} import x"):
        assert reached("apart", helpers=("def scale", f"{statement}\n\n\ndef scale")) is None
    assert reached("apart", helpers=("def scale", "import json, os.path\n\n\ndef scale")) is not None


def test_a_format_text_names_attributes():
    looks = ("def apart(x):\n    return x", "def apart(x):\n    return int('tile {0.TILE:d}'.format(x))")
    assert reached("apart", work=looks) != reached("apart", work=looks, shapes=("TILE = 8", "TILE = 16"))


@pytest.mark.parametrize(
    "write",
    [
        "global STATE\n    STATE = 1",
        "STATE['n'] = 1",
        "STATE.setdefault('n', 1)",
        "shapes.STATE = 1",
        "STATE.n[0] += 1",
    ],
)
def test_the_order_of_variants_counts_where_one_reads_what_another_writes(write):
    """The first caller wins; in another order it is another one."""

    def work(table, number):
        text = "from toy import shapes\nfrom toy.shapes import STATE\n"
        text += f"def a(x):\n    {write.replace('1', number)}\n    return x\n"
        text += "def b(x):\n    return STATE\ndef c(x):\n    return x\n"
        return {"toy/work.py": f"{text}VARIANTS = {table}\n".encode(), "toy/__init__.py": b"",
                "toy/shapes.py": b"STATE = {}\n"}  # fmt: skip

    before, other = work("{'a': a, 'b': b, 'c': c}", "1"), work("{'b': b, 'a': a, 'c': c}", "1")
    assert reach(before, "toy/work", "b") != reach(other, "toy/work", "b")
    assert reach(before, "toy/work", "b") != reach(work("{'a': a, 'b': b, 'c': c}", "2"), "toy/work", "b")
    assert reach(before, "toy/work", "c") == reach(other, "toy/work", "c")


def test_an_import_from_the_future_counts():
    future = ("def scale", "from __future__ import annotations\n\n\ndef scale")
    assert reached("slow", helpers=future) is not None
    assert reached("slow", helpers=future) != reached("slow")


def test_without_variants_nothing_is_proved():
    # Its functions are those that today's VARIANTS names (lockstep.suite.variants), and no file here says which.
    assert reached("fast", work=("VARIANTS = ", "OTHERS = ")) is None


def test_a_text_that_getattr_looks_up_is_a_name():
    looks = ("def apart(x):\n    return x", "def apart(x):\n    return getattr(helpers, 'scale')(x)")
    apart = reached("apart", work=looks)
    assert apart is not None
    assert any("name='deeper'" in one for one in apart)
    assert not any("name='deeper'" in one for one in reached("apart"))


@pytest.mark.parametrize(
    "looks",
    [
        "def apart(x, torch=helpers):\n    return torch.scale(x)",
        "def apart(x):\n    torch = helpers\n    return torch.scale(x)",
        "def apart(x):\n    from . import helpers as own\n    return own.scale(x)",
        "def apart(x):\n    from .helpers import scale as own\n    return own(x)",
        "def apart(x):\n    import toy.helpers as own\n    return own.scale(x)",
    ],
)
def test_what_may_be_ours_is_reached_under_whatever_name(looks):
    work = ("def apart(x):\n    return x", looks)
    deeper = ("return x * 3", "return x * 4")
    assert reached("apart", work=work) != reached("apart", work=work, helpers=deeper)
    assert reached("slow", work=work) == reached("slow", work=work, helpers=deeper)


def test_what_is_from_outside_reaches_nothing_of_ours_that_has_its_name():
    for looks in ("torch.slow(x)", "torch.nn.slow(x)"):
        apart = reached("apart", work=("def apart(x):\n    return x", f"def apart(x):\n    return {looks}"))
        assert not any("name='slow'" in one for one in apart)


@pytest.mark.parametrize("table", ["VARIANTS = dict(fast=fast)", "VARIANTS = {**OTHERS}"])
def test_a_table_that_is_no_plain_literal_proves_nothing(table):
    assert reached("apart", work=('VARIANTS = {"fast": fast, "slow": slow, "apart": apart}', table)) is None


def test_files_that_are_no_python_count_for_everybody():
    files = {path: textwrap.dedent(text).encode() for path, text in FILES.items()}
    assert reach({**files, "toy/t.json": b"1"}, "toy/work", "apart") != reach(
        {**files, "toy/t.json": b"2"}, "toy/work", "apart"
    )


def test_without_a_gpu_variants_are_proved_by_their_sources(tmp_path):
    trees = {}
    for side in ("base", "head"):
        for path, text in FILES.items():
            target = tmp_path / side / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(textwrap.dedent(text))
        trees[side] = Tree(side, tmp_path / side, ("toy",))
    # Today's variants are read beside the suite.
    home = tmp_path / "head" / "benchmarks"
    suite = make_suite(family="work", module="toy.work", cases=ONE, quick=ONE, baseline="fast", home=home)
    assert set(closure(trees["base"].root, ("toy",), "toy.work")) == set(FILES)
    said = []
    proof = prove(trees["base"], trees["head"], [suite], {"device": "cpu"}, said.append)
    assert proof.unreached == {("work", name) for name in VARIANTS}
    (tmp_path / "head/toy/shapes.py").write_text("TILE = 16\n")
    proof = prove(trees["base"], trees["head"], [suite], {"device": "cpu"}, said.append)
    assert proof.unreached == {("work", "fast"), ("work", "apart")}
    assert said == []
