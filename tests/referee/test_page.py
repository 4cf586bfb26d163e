"""The loop of docs/referee.md, run as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from project import START

from lockstep.referee.verdict import Outcome, Verdict

REPOSITORY = Path(__file__).parents[2]

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sin()


def get_inputs():
    return [torch.rand(64, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.thorough
def test_the_loop_of_the_page_runs_as_it_stands(tmp_path):
    text = (REPOSITORY / "docs" / "referee.md").read_text(encoding="utf-8")
    [loop] = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "problem.py").write_text(PROBLEM)
    # Makes the verb known where the installed package is older than the tree.
    (tmp_path / "lockstep").write_text(f"#!{sys.executable}\nimport lockstep.commands.referee\n{START}")
    (tmp_path / "lockstep").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", loop],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    verdicts = re.findall(r"^\d+ rows, step \d (faster|not-faster) $", done.stdout, re.MULTILINE)
    assert len(verdicts) == 4, done.stdout
    assert "4 candidates in" in done.stderr


def test_the_page_names_every_outcome_and_key():
    text = (REPOSITORY / "docs" / "referee.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)) >= set(Outcome)
    keys = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \| ", text, re.MULTILINE))))
    assert set(Verdict.__dataclass_fields__) <= keys
