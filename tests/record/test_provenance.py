"""What is recorded of the machine beside every result."""

import subprocess
from importlib.machinery import ModuleSpec

import pytest

from lockstep.record import provenance
from lockstep.record.provenance import harness_commit


@pytest.fixture
def ruler(tmp_path):
    """A repository with suites and a folder of results, both committed."""
    for path in ("benchmarks/linear.py", "results/machine/old.json"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    for words in ("init", "add .", "commit -m first"):
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", tmp_path, *identity, *words.split()], check=True, capture_output=True)
    return tmp_path


def test_results_that_come_and_go_are_no_change_of_the_ruler(ruler):
    (ruler / "results" / "machine" / "new.json").touch()
    (ruler / "results" / "machine" / "old.json").unlink()
    commit = harness_commit(ruler / "benchmarks", ruler / "results")
    assert len(commit) == 40


@pytest.mark.parametrize("results", ["results", "elsewhere", ".."])
def test_anything_else_is(ruler, results):
    (ruler / "benchmarks" / "results").touch()
    assert harness_commit(ruler / "benchmarks", ruler / results).endswith("+dirty")


def test_without_a_repository_nothing_is_told(tmp_path):
    assert harness_commit(tmp_path, tmp_path / "results") == ""


@pytest.mark.parametrize(
    ("about", "asked"),
    [
        ("cuda = None\nhip = None\n", False),
        ("cuda = '12.8'\nhip = None\n", True),
        ("cuda = None\nhip = '6.4'\n", True),
        ("debug = False\n", True),
        (None, True),
    ],
)
def test_a_torch_for_no_gpu_need_not_be_imported_to_know_the_host(tmp_path, monkeypatch, about, asked):
    if about is not None:
        (tmp_path / "version.py").write_text(about)
    installed = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(provenance, "find_spec", lambda name: installed)
    monkeypatch.setattr(provenance, "run", lambda *_, **__: pytest.fail("asked"))
    if asked:
        with pytest.raises(pytest.fail.Exception, match="asked"):
            provenance.ask_host()
    else:
        assert provenance.ask_host() == provenance.Host({"device": "cpu"}, "cpu", "cpu")
