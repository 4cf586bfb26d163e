"""The quick start for another repository, run as docs/adopting.md has it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from project import START

REPOSITORY = Path(__file__).parents[2]


def test_the_quick_start_runs_as_it_stands(tmp_path):
    text = (REPOSITORY / "docs/adopting.md").read_text(encoding="utf-8")
    root, programs = tmp_path / "project", tmp_path / "bin"
    files = re.findall(r"^`([\w./]+)`[^\n]*\n\n```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert [path for path, _ in files] == ["fused/rmsnorm.py", "benchmarks/rmsnorm.py", "asv.conf.json"]
    for path, content in files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")
    programs.mkdir()
    (programs / "lockstep").write_text(f"#!{sys.executable}\n{START}")
    (programs / "lockstep").chmod(0o755)
    [commands] = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=root,
        env={
            **{name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "HOME": str(tmp_path),
            "COLUMNS": "200",
            **{f"GIT_{who}_{what}": "tester" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"eager +│ M=64,K=1024 │ warm │ +[\d.]+ │.* 1\.000×|eager +│ M=1,K=4096 +│ cold", done.stdout)
    assert "failed" not in done.stdout
    assert "%s" not in done.stdout
    assert "Nothing slower by more than 1 %" in done.stdout
    assert (root / ".asv/html/index.html").is_file()
    [stored] = (root / "results").glob("*/*-lockstep.provenance.jsonl")
    assert '"variant":"by_hand"' in stored.read_text(encoding="utf-8")
    untracked = subprocess.run(["git", "status", "--short"], cwd=root, capture_output=True, text=True, check=True)
    assert untracked.stdout == "?? results/\n"
