"""Workflows run as a runner would, but for ``uses:``: only the repository's own composite action is entered."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from project import START, Project

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"

#: Installs packages as root where they are missing; ``.ci/run`` runs it.
NOT_HERE = ("make system-deps",)

#: What ``make lint`` and ``make test`` look at in a scratch repository.
PYPROJECT = """
[tool.ruff]
include = ["tests/*.py"]
[tool.mypy]
files = ["tests"]
[tool.pytest.ini_options]
testpaths = ["tests"]
"""

#: Clocks are tried on a stand-in library, whose GPU no torch can load: as the tests of the clocks do it.
STAND_IN = """
import os, sys
if "STAND_IN" in os.environ:
    import time
    from pathlib import Path
    from lockstep.gpu import clock_lock as clocks, clock_verification as clock_state
    clock_state.SETTLE_S, clock_state.HOLD_S = 0.0, 0.05
    def load():
        (Path(os.environ["STAND_IN"]) / "busy-0").touch()
        time.sleep(0.005)
    clocks.torch_load = lambda gpu: load
"""


def read(path: Path) -> dict[str, Any]:
    """A YAML file; its key ``on`` is a string and not true, as GitHub reads it."""
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {("on" if key is True else key): value for key, value in loaded.items()}


def workflow(name: str) -> dict[str, Any]:
    """One of this repository's workflows."""
    return read(WORKFLOWS / f"{name}.yml")


@dataclass
class Step:
    """What became of a step that was run."""

    run: str
    code: int
    output: str


@dataclass
class Job:
    """What became of a job.

    Attributes:
        steps: those that were run, in order.
        outcome: "success", "failure" or "skipped".
        outputs: of the steps that have an id, and of the composite action.
        artifacts: name to the path that was uploaded.
    """

    steps: list[Step] = field(default_factory=list)
    outcome: str = "success"
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    def step(self, part: str) -> Step:
        """The step whose command holds a text."""
        (found,) = [one for one in self.steps if part in one.run]
        return found

    def ran(self, part: str) -> bool:
        """Whether a step was run whose command holds a text."""
        return any(part in one.run for one in self.steps)


@dataclass
class Runner:
    """A runner with a checkout.

    Attributes:
        project: what is checked out.
        context: the expressions' contexts: ``github``, ``inputs``, ``vars``, ``secrets`` …
        environment: of the machine.
        inputs: of the composite action, over what the workflow gives.
    """

    project: Project
    context: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give the checkout our Makefile and what its ``make venv`` would: the Python of the tests, its commands."""
        shutil.copy(ROOT / "Makefile", self.project.root)
        (self.project.root / "pyproject.toml").write_text(PYPROJECT)
        folder = self.project.root / ".venv"
        (folder / "bin").mkdir(parents=True)
        for kind in ("created", "installed"):
            for machine in ("cpu", "cuda"):
                (folder / f"{kind}-{machine}").touch()
        python = shlex.quote(sys.executable)
        start = folder / "start.py"
        start.write_text(STAND_IN + START)
        commands = {"lockstep": f'{python} {shlex.quote(str(start))} "$@"'}
        commands |= {tool: f'{python} -m {tool} "$@"' for tool in ("pytest", "ruff", "mypy")}
        # ``python -m lockstep`` on the stand-in too.
        commands["python"] = (
            f'[ "$1 $2" != "-m lockstep" ] || {{ shift 2; exec {commands["lockstep"]}; }}\nexec {python} "$@"'
        )
        for name, command in commands.items():
            path = folder / "bin" / name
            path.write_text(f"#!/bin/sh\n{command if name == 'python' else f'exec {command}'}\n")
            path.chmod(0o755)
        self.temporary = self.project.root.parent / "runner"
        self.temporary.mkdir(exist_ok=True)
        self.context.setdefault("runner", {"temp": str(self.temporary)})

    def job(self, definition: Mapping[str, Any], name: str) -> Job:
        """Run one job of a workflow."""
        job = Job()
        described = definition["jobs"][name]
        if not self._holds(described.get("if", "true"), job):
            job.outcome = "skipped"
            return job
        environment = self._texts({**definition.get("env", {}), **described.get("env", {})})
        self.context["env"] = environment
        self._steps(described["steps"], environment, job, self.project.root)
        summary = self.temporary / "summary"
        job.summary = summary.read_text() if summary.exists() else ""
        return job

    def _steps(self, steps: list[dict[str, Any]], environment: dict[str, str], job: Job, action: Path) -> None:
        for step in steps:
            if not self._holds(str(step.get("if", "success()")), job):
                continue
            if "uses" in step:
                self._use(step, environment, job)
            elif step["run"] not in NOT_HERE:
                done = self._run(step, environment, job, action)
                if done.code and not step.get("continue-on-error"):
                    job.outcome = "failure"

    def _use(self, step: dict[str, Any], environment: dict[str, str], job: Job) -> None:
        given = self._texts(step.get("with", {}))
        if "upload-artifact" in step["uses"]:
            job.artifacts[given["name"]] = given["path"]
        if not step["uses"].startswith("./"):
            return
        action = ROOT / step["uses"][2:]
        described = read(action / "action.yml")
        defaults = self._texts({name: str(one.get("default", "")) for name, one in described["inputs"].items()})
        assert set(given) <= set(defaults), f"{action} has no such input: {set(given) - set(defaults)}"
        assert all(given.get(name) for name, one in described["inputs"].items() if one.get("required"))
        outside = self.context
        self.context = {**outside, "inputs": {**defaults, **given, **self.inputs}}
        self._steps(described["runs"]["steps"], environment, job, action)
        self.context = {**self.context, "steps": {name: {"outputs": of} for name, of in job.outputs.items()}}
        job.outputs["action"] = self._texts({name: one["value"] for name, one in described.get("outputs", {}).items()})
        self.context = outside

    def _run(self, step: dict[str, Any], environment: dict[str, str], job: Job, action: Path) -> Step:
        assert "${{" not in step["run"], "an expression in a script is an injection"
        output = self.temporary / f"output-{len(job.steps)}"
        output.touch()
        shell = {"bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]}
        done = subprocess.run(
            [*shell.get(step.get("shell", ""), ["bash", "-e", "-c"]), step["run"]],
            cwd=self.project.root / self._text(step.get("working-directory", ".")),
            env={
                **self.project._environment(),
                # Not the ARGS that `make test` itself was given.
                "MAKEFLAGS": "",
                "CI": "true",
                "GITHUB_ACTIONS": "true",
                "GITHUB_ACTION_PATH": str(action),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(self.temporary / "summary"),
                "GITHUB_REPOSITORY": str(self.context["github"].get("repository", "")),
                "GITHUB_REF": str(self.context["github"].get("ref", "")),
                "RUNNER_TEMP": str(self.temporary),
                **self.environment,
                **environment,
                **self._texts(step.get("env", {})),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )
        told = Step(step["run"], done.returncode, done.stdout)
        job.steps.append(told)
        if "id" in step:
            job.outputs[step["id"]] = {
                name: value
                for name, _, value in re.findall(r"^(\w+)<<(\S+)\n(.*?)\n\2$", output.read_text(), re.M | re.S)
            }
        return told

    def _holds(self, condition: str, job: Job) -> bool:
        text = condition.removeprefix("${{").removesuffix("}}")
        # GitHub adds success() to every condition that asks for no state itself.
        asked = re.search(r"\b(always|failure|success|cancelled)\(\)", text)
        states = {
            "always": lambda: True,
            "success": lambda: job.outcome == "success",
            "failure": lambda: job.outcome == "failure",
            "cancelled": lambda: False,
        }
        return bool(self._value(text, states)) and (bool(asked) or job.outcome == "success")

    def _texts(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {name: self._text(value) for name, value in values.items()}

    def _text(self, value: Any) -> str:
        return re.sub(r"\$\{\{(.*?)\}\}", lambda match: _shown(self._value(match[1], {})), str(value))

    def _value(self, expression: str, functions: Mapping[str, Any]) -> Any:
        """An expression's value, by Python: as much of the language as the workflows speak."""
        names: dict[str, Any] = {**functions, "format": lambda text, *parts: text.format(*parts), "true": True}
        for one in ("github", "inputs", "vars", "secrets", "env", "runner", "steps", "needs", "matrix"):
            names[one] = _Context(self.context.get(one, {}))
        python = re.sub(r"\.([\w-]+)", lambda match: f"[{match[1]!r}]", expression.strip())
        python = python.replace("&&", " and ").replace("||", " or ")
        python = re.sub(r"!(?!=)", " not ", python)
        return eval(python, {"__builtins__": {}}, names)


class _Context(dict[str, Any]):
    """What is missing is empty, however deep."""

    def __getitem__(self, key: str) -> Any:
        value = self.get(key, _Context())
        return _Context(value) if isinstance(value, dict) else value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    return "" if isinstance(value, dict) else str(value)


def tool(name: str) -> list[str]:
    """Command line of a program that a Python package brings, wherever the package lies."""
    beside = Path(sys.executable).with_name(name)
    if beside.exists():
        return [str(beside)]
    for folder in map(Path, sys.path):
        if (found := folder.parents[2] / "bin" / name if len(folder.parents) > 2 else folder / name).exists():
            return [str(found)]
    raise FileNotFoundError(f"{name} is not installed; it comes with kernel-lockstep[dev]")
