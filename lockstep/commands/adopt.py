"""``lockstep adopt``: write suites for what benchmark scripts time."""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import replace
from pathlib import Path

from asv.commands import Command
from asv.config import Config
from rich.console import Console

from lockstep.commands.config import CONFIGS
from lockstep.commands.script_option import project_of
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BROKEN, UsageError
from lockstep.processes.git import Git
from lockstep.processes.sigterm import sigterm_interrupts
from lockstep.record.console import line_console
from lockstep.scripts.client import Outcome, run_version
from lockstep.scripts.plan import Plan
from lockstep.scripts.project import Project
from lockstep.suite.commit_sources import WORKING_TREE

#: Folder of suites where asv.conf.json names none: ``benchmarks`` holds the scripts in most projects.
FOLDER = "lockstep_suites"


class Adopt(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Write suites for what benchmark scripts time.

    Run benchmark scripts, and write a suite for the calls that they time: cases, inputs and variants, for you to add
    references and costs. Exit status: 3 if nothing could be written.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        parser.add_argument("path", metavar="PATH", help="a script, 'FILE ARGUMENTS', or a folder of scripts")
        parser.add_argument("--package", action="append", default=[], metavar="NAME", help="package under test")
        parser.set_defaults(quick=False)

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Write a module for each script; print what was left out, and the next command."""
        path = Path(args.path)
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        scripts = [shlex.quote(str(file)) for file in files] if path.exists() else [args.path]
        console, errors, written = line_console(), line_console(stderr=True), []
        with sigterm_interrupts():
            for script in scripts:
                args.script = script
                project, plan = project_of(args)
                name = project.file.stem
                found = next((path for path in [args.config, *CONFIGS] if path and Path(path).is_file()), None)
                settings = Path(found).absolute() if found else project.top / "asv.conf.json"
                named = Config.load(str(settings)).benchmark_dir if settings.is_file() else FOLDER
                target = settings.parent / named / f"{name}.py"
                if target.exists():
                    raise UsageError(f"{target} exists: delete or rename it, then adopt {script} again")
                if not (text := _text(project, replace(plan, adopt=True), errors)):
                    continue
                if not settings.is_file():
                    settings.write_text(_configuration(project), encoding="utf-8")
                target.parent.mkdir(exist_ok=True, parents=True)
                (target.parent / "__init__.py").touch()
                target.write_text(text, encoding="utf-8")
                written.append(name)
                console.print(f"{target} is written. Measure it in {settings.parent}: lockstep measure {name}")
        return 0 if written else BROKEN


def _text(project: Project, plan: Plan, errors: Console) -> str:
    """Return the source of the suites of a script; "" if none of its calls can be written."""
    outcome = Outcome()
    for _ in run_version(project, WORKING_TREE, plan, errors.print, outcome):
        pass
    lines = [f"left out: {', '.join(dict.fromkeys(names))}: {why}" for why, names in outcome.left_out.items()]
    for line in [*lines, *outcome.remarks(plan, project.file)]:
        errors.print(f"{project.file.name}: {line}")
    return outcome.adopted


def _configuration(project: Project) -> str:
    """Return asv.conf.json for the top of a repository that has none."""
    below = project.root.relative_to(project.top)
    rows = {
        "version": 1,
        "project": project.top.name,
        "repo": ".",
        "branches": Git(project.top).lines("rev-parse", "--abbrev-ref", "HEAD"),
        "environment_type": "lockstep",
        "plugins": [".lockstep.asv", ".dashboard.snapshot"],
        "benchmark_dir": FOLDER,
        "lockstep": {"packages": [] if project.own else list(project.packages)},
        **({"repo_subdir": str(below)} if below.name else {}),
        "env_dir": ".asv/env",
        "html_dir": ".asv/html",
        "regressions_first_commits": {".*speedup.*": None},
    }
    return json.dumps(rows, indent=4) + "\n"
