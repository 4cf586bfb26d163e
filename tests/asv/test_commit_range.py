"""The commits that a command line names."""

import io

import pytest
from asv.config import Config
from project import make_project

from lockstep.asv.commit_range import commits_of
from lockstep.processes.exit_status import UsageError


@pytest.fixture
def project(tmp_path, monkeypatch):
    project = make_project(tmp_path / "project")
    project.git("tag", "first", "HEAD~1")
    monkeypatch.chdir(project.root)
    return project


def test_each_name_of_a_range_gives_hashes_newest_first(project, monkeypatch):
    conf = Config.load()
    commits = project.git("rev-list", "HEAD").split()
    for spec in ("ALL", "NEW", "HEAD", "HASHFILE:-"):
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(commits)))
        assert commits_of(conf, spec) == (commits[:1] if spec == "HEAD" else commits), spec
    assert commits_of(conf, None) == commits[:1]
    assert commits_of(conf, "EXISTING") == []
    assert commits_of(conf, "TAGS") == ["first"]
    assert commits_of(conf, "HEAD~1..HEAD") == commits[:1]
    assert commits_of(conf, "ALL", steps=1) == commits[:1]
    assert len(commits_of(conf, "ALL", period=10 * 365 * 86400.0)) == 1


def test_a_name_that_is_not_there_is_a_mistake(project):
    conf = Config.load()
    (project.root / "commits.txt").write_text("HEAD\nnowhere\n")
    for spec, said in (("HASHFILE:commits.txt", "nowhere"), ("HASHFILE:absent.txt", "absent.txt does not exist")):
        with pytest.raises(UsageError, match=said):
            commits_of(conf, spec)
    conf.branches = ["other"]
    with pytest.raises(UsageError, match=r'branch of "branches" in asv.conf.json: other'):
        commits_of(conf, None)
