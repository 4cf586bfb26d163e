"""Which commits lie between two: whole ranges are known, and what git cannot see whole is unknown."""

import subprocess

import pytest
from history import commits_of

from lockstep.alerts.cause.commit_ranges import Ranges

LENGTH = 30


def git(repo, *arguments):
    return subprocess.run(["git", "-C", repo, *arguments], check=True, capture_output=True, text=True).stdout.split()


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """A repository of thirty commits in a row, every fourth of which touches ``kernels/``."""
    root = tmp_path_factory.mktemp("line") / "repo"
    return root, commits_of(root, LENGTH, touch=lambda n: n % 4 == 0)


def graph(root, *commits):
    """A repository of these commits (name, parents, content of ``kernels/``), and their hashes by name.

    A merge has its first parent's tree but for the content given.
    """
    root.mkdir()
    marks = {name: mark for mark, (name, *_) in enumerate(commits, 1)}
    stream = []
    for name, parents, content in commits:
        stream.append(f"commit refs/heads/{name}\nmark :{marks[name]}")
        stream.append(f"committer T <t@example.org> {1_600_000_000 + marks[name]} +0000\ndata {len(name)}\n{name}")
        stream += [f"{'merge' if at else 'from'} :{marks[one]}" for at, one in enumerate(parents)]
        stream.append(f"M 644 inline kernels/linear.py\ndata {len(content)}\n{content}")
        stream.append(f"M 644 inline notes/{name}\ndata 0\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    command = ["git", "-C", root, "fast-import", "--quiet", "--export-marks=marks"]
    subprocess.run(command, input="\n".join(stream), text=True, check=True)
    hashes = dict(line.split() for line in (root / "marks").read_text().splitlines())
    return {name: hashes[f":{mark}"] for name, mark in marks.items()}


def found(root, commits, before, after, packages=("kernels",)):
    """The range between two commits and what touches the packages, by the commits' names."""
    names = {commit: name for name, commit in commits.items()}
    one = Ranges(root, packages).between(commits[before], commits[after])
    touched = None if one.touched is None else {names[commit] for commit in one.touched}
    return {names[commit] for commit in one.commits}, touched, one.unknown


def test_commits_in_a_row(line):
    root, commits = line
    one = Ranges(root, ("kernels",)).between(commits[3], commits[13])
    assert (one.commits, one.unknown) == (tuple(commits[4:14]), "")
    assert one.touched == (commits[4], commits[8], commits[12])
    assert Ranges(root).between(commits[3], commits[13]).touched is None
    # A name that no commit has is a mistake, and says nothing of the commits.
    assert Ranges(root, ("kernel",)).between(commits[3], commits[13]).touched is None
    (root / "docs").mkdir()
    assert Ranges(root / "docs", ("./kernels", "kernel")).between(commits[3], commits[5]).touched == (commits[4],)
    assert Ranges(root, (".",)).between(commits[3], commits[5]).touched == (commits[4], commits[5])


@pytest.mark.parametrize("depth", [1, 5, 30])
def test_a_shallow_clone_knows_the_ranges_above_its_end_alone(line, tmp_path, depth):
    root, commits = line
    clone = tmp_path / "clone"
    git(root, "clone", "-q", f"--depth={depth}", f"file://{root}", clone)
    ranges = Ranges(clone, ("kernels",))
    for before in range(0, LENGTH, 3):
        for after in range(before + 1, LENGTH, 4):
            one = ranges.between(commits[before], commits[after])
            if before >= LENGTH - depth:
                assert (one.commits, one.unknown) == (tuple(commits[before + 1 : after + 1]), "")
            else:
                assert (one.commits, one.touched) == ((), None)
                # The order of two commits is known if the clone holds both.
                assert one.unknown == "unplaced"


def test_both_ends_may_be_there_and_what_lies_between_not(line, tmp_path):
    root, commits = line
    git(root, "config", "uploadpack.allowAnySHA1InWant", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "init", "-q", clone)
    git(clone, "fetch", "-q", "--depth=1", f"file://{root}", commits[3])
    git(clone, "fetch", "-q", "--depth=4", f"file://{root}", commits[13])
    assert Ranges(clone).between(commits[3], commits[13]).unknown == "unplaced"
    assert Ranges(clone).between(commits[10], commits[13]).commits == tuple(commits[11:14])
    state = Ranges(clone).state(())
    git(clone, "fetch", "-q", "--unshallow", f"file://{root}", commits[13])
    assert Ranges(clone).between(commits[3], commits[13]).commits == tuple(commits[4:14])
    assert Ranges(clone).state(()) != state


def test_without_the_commits_nothing_is_known(line, tmp_path):
    root, commits = line
    assert Ranges(tmp_path).between(commits[3], commits[13]).unknown == "no repository"
    assert Ranges(tmp_path / "nowhere").between(commits[3], commits[13]).unknown == "no repository"
    ranges = Ranges(root)
    for ends in ((commits[3], "f" * 40), ("f" * 40, commits[3]), ("f" * 40, "e" * 40), ("HEAD", commits[3])):
        assert ranges.between(*ends).unknown == "missing"
    ranges.learn([*commits, "f" * 40])
    assert ranges.state(commits) != ranges.state([*commits, "f" * 40])


#: A side branch that began before ``b`` and was merged after it.
MERGED = (
    ("a", [], "1"),
    ("b", ["a"], "1"),
    ("s1", ["a"], "1"),
    ("s2", ["s1"], "2"),
    ("m", ["b", "s2"], "2"),
    ("c", ["m"], "2"),
)


def test_a_merge_adds_its_branch_and_is_not_a_suspect_itself(tmp_path):
    commits = graph(tmp_path / "repo", *MERGED)
    assert found(tmp_path / "repo", commits, "b", "c") == ({"s1", "s2", "m", "c"}, {"s2"}, "")
    assert found(tmp_path / "repo", commits, "m", "c") == ({"c"}, set(), "")


def test_a_merge_that_changes_something_itself_is_a_suspect(tmp_path):
    evil = [*MERGED[:4], ("m", ["b", "s2"], "3")]
    commits = graph(tmp_path / "evil", *evil)
    assert found(tmp_path / "evil", commits, "b", "m") == ({"s1", "s2", "m"}, {"s2", "m"}, "")
    # It takes the old branch's content, and so undoes what came before it on the other: git's own simplified history
    # of the folder would list nothing.
    undone = [("a", [], "1"), ("b", ["a"], "2"), ("s", ["a"], "1"), ("m", ["b", "s"], "1")]
    commits = graph(tmp_path / "undone", *undone)
    assert found(tmp_path / "undone", commits, "b", "m") == ({"s", "m"}, {"m"}, "")
    later = [*undone[:3], ("s2", ["s"], "1"), ("m", ["s2", "b"], "1"), ("c", ["m"], "1")]
    commits = graph(tmp_path / "later", *later)
    assert found(tmp_path / "later", commits, "b", "c") == ({"s", "s2", "m", "c"}, {"m"}, "")


def test_commits_on_different_branches_have_no_range(tmp_path):
    commits = graph(tmp_path / "repo", *MERGED)
    for ends in (("b", "s2"), ("s2", "b"), ("c", "b"), ("b", "b")):
        assert found(tmp_path / "repo", commits, *ends) == (set(), None, "branches")


def test_a_history_that_was_rewritten_has_no_range(line, tmp_path):
    root, commits = line
    clone = tmp_path / "clone"
    git(root, "clone", "-q", root, clone)
    git(clone, "checkout", "-q", "--orphan", "anew")
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    git(clone, *who, "commit", "-q", "--allow-empty", "-m", "Begin anew")
    [head] = git(clone, "rev-parse", "HEAD")
    assert Ranges(clone).between(commits[3], head).unknown == "branches"


def test_a_branch_that_reaches_below_a_shallow_end_is_not_taken_for_the_range(tmp_path):
    """The clone ends at ``b`` and has its parent ``a`` by another way: git takes ``a`` for later than ``b``."""
    root, clone = tmp_path / "repo", tmp_path / "clone"
    commits = graph(root, ("a", [], "1"), ("b1", ["a"], "1"), ("b", ["b1"], "1"), ("m", ["b", "a"], "2"))
    git(tmp_path, "init", "-q", clone)
    git(root, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(clone, "fetch", "-q", "--depth=2", f"file://{root}", commits["m"])
    assert found(clone, commits, "b", "m") == (set(), None, "shallow")
    assert found(root, commits, "b", "m") == ({"m"}, {"m"}, "")


@pytest.mark.parametrize("kind", ["blob:none", "tree:0"])
def test_a_partial_clone_fetches_nothing_and_claims_nothing(line, tmp_path, kind):
    root, commits = line
    git(root, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git(root, "clone", "-q", "--no-checkout", f"--filter={kind}", f"file://{root}", clone)
    git(clone, "config", "remote.origin.url", str(tmp_path / "gone"))
    one = Ranges(clone, ("kernels",)).between(commits[3], commits[13])
    assert one.commits == tuple(commits[4:14])
    assert one.touched == ((commits[4], commits[8], commits[12]) if kind == "blob:none" else None)
