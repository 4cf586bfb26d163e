"""The version of a suite: what it decides, and the warning where the text changed without it."""

import re
import sys

import pytest
from made_suites import changed_suite, make_suite
from project import Project

from lockstep.suite.changed_text import changed_texts
from lockstep.suite.discovery import load_suites

SUITES = '''
"""Two suites."""

import numbers

from lockstep import Cost, Suite, grid, variant

SCALE = 2


class _Base(Suite):
    cases = quick = grid(M=[1])
    baseline = "plain"

    def draw(self, new, M):
        """One vector."""
        return {"x": new.normal(M)}

    def cost(self, M):
        return Cost(1.0, 4.0 * M)

    @variant
    def plain(self, x):
        return SCALE * x


class One(_Base):
    op = "one"

    def reference(self, x):
        return SCALE * x


class Two(_Base):
    op = "two"
    version = "3"

    def reference(self, x):
        # Twice.
        return 2 * x
'''


def load(folder, text):
    """The suites of a text, by name. The folder has a name of its own, because Python imports a name once."""
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").touch()
    (folder / "thing.py").write_text(text)
    return load_suites(folder)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    made = Project(tmp_path)
    made.git("init", "-q")
    return made


@pytest.fixture
def warnings(project):
    """What is said of suites whose committed text was ``SUITES`` with ``old`` replaced by ``earlier``."""

    def warnings_of(old, earlier):
        assert SUITES.count(old) == 1
        folder = project.root / f"stated_{project.root.name}"
        folder.mkdir()
        (folder / "thing.py").write_text(SUITES.replace(old, earlier))
        commit = project.commit("Add suites")
        return changed_texts(load(folder, SUITES).values(), commit)

    return warnings_of


@pytest.mark.parametrize(
    ("old", "earlier", "suites", "name"),
    [
        ("        # Twice.\n        return 2 * x", "        return 3 * x", "two", "Two.reference"),
        ("4.0 * M", "2.0 * M", "one two", "_Base.cost"),
        ("SCALE = 2", "SCALE = 3", "one two", "SCALE"),
        ("SCALE = 2", "SCALE = 2\nSCALES = {}\nSCALES[1] = 2", "one two", "SCALES, SCALES[1] = 2"),
        ("import numbers", "import math", "one two", "import math, import numbers"),
        ('op = "one"', 'op = "one"; tolerance = 0.5', "one", "One.tolerance"),
    ],
)
def test_a_changed_text_with_an_unchanged_version_is_a_warning(warnings, old, earlier, suites, name):
    versions = {"one": "1", "two": "3"}
    found = warnings(old, earlier)
    for warning, op in zip(found, suites.split(), strict=True):
        assert re.fullmatch(
            rf"suite thing\.{op}: stated_\S+/thing\.py differs from commit [0-9a-f]{{8}} in {re.escape(name)}, but its "
            rf"version is still {versions[op]}\. If its numbers cannot be compared any more, raise the version",
            warning,
        )


@pytest.mark.parametrize(
    ("old", "earlier"),
    [
        ("        # Twice.\n", ""),
        ('"""One vector."""', '"""Some vector."""'),
        ('"""Two suites."""', ""),
        ("return {", "return  {"),
        ("grid(M=[1])", "grid(M=[1, 2])"),
        ('op = "one"', 'op = "one"; tracked = ("plain",)'),
        ('op = "one"', 'op = "one"; version = "1"'),
        ('op = "one"', 'op = "one"; continues = "6.1", "0123456789abcdef"'),
    ],
)
def test_comments_and_the_choice_of_cases_are_no_change(warnings, old, earlier):
    assert warnings(old, earlier) == []


def test_a_changed_text_with_another_version_is_no_warning(warnings):
    assert warnings('version = "3"\n\n    def reference(self, x):\n        # Twice.', "def reference(self, x):") == []


def test_an_unknown_commit_gives_no_warning(project):
    suites = load(project.root / f"stated_{project.root.name}", SUITES).values()
    for commit in ("", "0123456", "--output=here"):
        assert changed_texts(suites, commit) == []


def test_another_version_or_protocol_starts_new_series(monkeypatch):
    assert make_suite().benchmark_version == make_suite(version="1").benchmark_version == "6.1"
    assert make_suite(version="2").benchmark_version == "6.2"
    monkeypatch.setattr("lockstep.suite.definition.PROTOCOL_VERSION", 7)
    assert make_suite(version="2").benchmark_version == "7.2"


def test_a_suite_made_from_another_continues_none_of_its_series():
    recorded = type(make_suite(continues=("6.1", "fedcba9876543210")))
    made = type("Mine", (recorded,), {"family": "mine"})
    assert (recorded().benchmark_version, made().benchmark_version) == ("fedcba9876543210", "6.1")


def test_a_suite_continues_recorded_series_until_its_version_changes(monkeypatch):
    suite = make_suite(continues=("6.1", "fedcba9876543210"))
    assert suite.benchmark_version == "fedcba9876543210"
    assert changed_suite(suite, version="2").benchmark_version == "6.2"
    monkeypatch.setattr("lockstep.suite.definition.PROTOCOL_VERSION", 7)
    assert suite.benchmark_version == "7.1"
