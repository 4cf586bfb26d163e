"""Git: what it prints, and why it prints nothing."""

import subprocess

import pytest

from lockstep.processes.git import Git, GitError


@pytest.fixture
def repository(tmp_path):
    author = ("-c", "user.name=n", "-c", "user.email=e@e")
    for command in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "a\u2028b"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    return Git(tmp_path)


def test_a_line_separator_in_a_subject_ends_no_line(repository):
    assert repository.lines("log", "--format=%s%n%s") == ["a\u2028b", "a\u2028b"]


def test_lines_are_given_and_an_empty_answer_is_no_failure(repository):
    [head] = repository.lines("rev-parse", "HEAD")
    [found] = repository.lines("cat-file", "--batch-check", given=[head])
    assert found.startswith(f"{head} commit")
    assert repository.lines("status", "--porcelain") == []
    assert repository.try_lines("status", "--porcelain") == []


def test_a_refusal_names_the_command_and_git_s_reason(repository, tmp_path):
    with pytest.raises(GitError, match=r"^git rev-parse failed: fatal: .*unknown") as refused:
        repository.lines("rev-parse", "unknown")
    assert refused.value.stderr.startswith("fatal:")
    assert repository.try_lines("rev-parse", "unknown") is None
    assert repository.try_line("rev-parse", "unknown") == ""


def test_a_missing_git_and_a_slow_one_are_errors(repository, tmp_path, monkeypatch):
    with pytest.raises(GitError, match="git cat-file took longer than 0 s"):
        Git(repository.folder, timeout_s=0.0).lines("cat-file", "--batch")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(GitError, match=r"^git cannot be run: No such file or directory$"):
        repository.lines("status")
