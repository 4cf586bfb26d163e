"""What measures needs no extra but torch, and a verb whose extra is missing says what to install."""

import re
import tomllib
from pathlib import Path

import pytest

from lockstep.processes.extras import EXTRAS
from tests.project import make_project

ROOT = Path(__file__).parents[2]
#: As Python starts: packages of the extras named in HIDDEN cannot be found.
HIDE = """
import importlib.abc, os, sys

class Hidden(importlib.abc.MetaPathFinder):
    names = set(os.environ["HIDDEN"].split())

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


@pytest.fixture
def run(tmp_path):
    project = make_project(tmp_path / "toy")
    (project.root / "results").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(HIDE)

    def run(*arguments, hidden=("history", "dashboard", "postgresql")):
        process = project.popen(
            *arguments, PYTHONPATH=f"{tmp_path / 'site'}:{ROOT}", HIDDEN=" ".join(set().union(*map(EXTRAS.get, hidden)))
        )
        shown, _ = process.communicate(timeout=240)
        return process.returncode, shown

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("measure", "product", "--quick", "--case", "M=2,K=1024,N=512"),
        ("code", "show", "HEAD", "--target", "sm_90"),
        ("clocks", "--help"),
    ],
    ids=lambda words: words[0],
)
def test_what_measures_runs_without_extras(run, words):
    status, shown = run(*words)
    assert status == 0, shown


@pytest.mark.parametrize(
    ("words", "extra"),
    [("ingest", "history"), ("changes", "history"), ("alerts list", "history"), ("dashboard --port 0", "dashboard")],
)
def test_a_verb_whose_extra_is_missing_says_what_to_install(run, words, extra):
    status, shown = run(*words.split())
    assert status == 3, shown
    assert re.search(rf"· \w+ is not installed: pip install '\.\[{extra}\]' in a clone of Lockstep\n", shown), shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("words", [("measure", "product", "--quick"), ("run", "HEAD^!"), ("gate",)])
def test_without_torch_the_extra_for_it_is_named(run, words):
    status, shown = run(*words, hidden=("gpu",))
    assert status == 3, shown
    assert "torch is not installed: pip install '.[gpu]' in a clone of Lockstep" in shown
    assert "Traceback" not in shown


def test_the_table_of_extras_is_that_of_the_distribution():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = {
        extra: {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in lines} - {"kernel_lockstep"}
        for extra, lines in project["optional-dependencies"].items()
    }
    # No verb imports what builds the site, tests, or is measured beside the kernels.
    assert {extra: names for extra, names in stated.items() if extra not in ("dev", "docs", "rivals")} == EXTRAS


def test_what_the_distribution_needs_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = sum(project["optional-dependencies"].values(), project["dependencies"])
    pins = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "constraints").glob("*.txt")))
    pinned = set(re.findall(r"^([\w-]+)==", pins, re.MULTILINE))
    assert {re.match(r"[\w-]+", line)[0] for line in stated} - {"kernel-lockstep"} <= pinned
