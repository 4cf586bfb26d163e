"""A tiny project with an asv history, for tests that run the whole chain on a CPU."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from verb import run_verb

#: A package whose kernel tunes itself.
TUNED_PACKAGE = """
    import torch
    import triton
    import triton.language as tl


    @triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 64, 256)], key=["n"])
    @triton.jit
    def _double(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


    def double(x):
        out = torch.empty_like(x)
        _double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
"""

SUITE = """
    from lockstep import Cost, Suite, grid


    class Product(Suite):
        module = "toy.product"
        baseline = "plain"
        tolerance = 1e-5
        quick = grid(M=[2, 3], K=1024, N=512)
        cases = quick + grid(M=[4096], K=1024, N=512)

        def draw(self, new, M, K, N):
            return {"x": new.normal(M, K, dtype="float32"), "weight": new.normal(K, N, dtype="float32")}

        def buffers(self, new, M, N):
            return new.empty(M, N, dtype="float32")

        def reference(self, x, weight):
            return x.double() @ weight.double()

        def cost(self, M, K, N):
            return Cost(2 * M * K * N, 4 * (M * K + K * N + M * N))

        def skips(self, variant, M):
            return "only at M=2" if variant == "limited" and M != 2 else ""


    def track_answer():
        return 42
"""

KERNELS = """
    import os
    import signal
    import time

    import torch


    def plain(x, weight, *, out=None):
        return torch.mm(x, weight, out=out)


    def twice(x, weight, *, out):
        torch.mm(x, weight, out=out)
        return torch.mm(x, weight, out=out)


    VARIANTS = {"plain": plain, "twice": twice}
"""

#: More variants, each broken in its own way; appended to KERNELS.
BROKEN = """

    def wrong(x, weight):
        return 1.01 * (x @ weight)


    def unwritten(x, weight, *, out):
        out[1:] = (x @ weight)[1:]
        return out


    def raises(x):
        raise RuntimeError("no such thing\\nand more")


    def hangs(x):
        time.sleep(1000)


    def killed(x):
        os.kill(os.getpid(), signal.SIGKILL)


    def dies_while_timed(x, weight, calls=[]):
        calls.append(1)
        if len(calls) > 5:
            os.kill(os.getpid(), signal.SIGSEGV)
        return x @ weight


    def hungry(x):
        return torch.empty(1 << 60)


    def elsewhere(x):
        raise NotImplementedError("needs Blackwell")


    VARIANTS = {
        "plain": plain,
        "twice": twice,
        "limited": plain,
        "wrong": wrong,
        "unwritten": unwritten,
        "raises": raises,
        "hangs": hangs,
        "killed": killed,
        "hungry": hungry,
        "elsewhere": elsewhere,
        "dies_while_timed": dies_while_timed,
    }
"""


START = """
from lockstep.commands.cli import main

if __name__ == "__main__":  # asv starts processes that import this again
    main()
"""


#: Holds the home of the project whose verb runs in this process.
_HOMES = tempfile.TemporaryDirectory()


def _take_modules(tops: set[str]) -> dict[str, ModuleType]:
    """Remove the modules of these top-level names from those that are imported, and return them."""
    names = [name for name in sys.modules if name.partition(".")[0] in tops]
    return {name: sys.modules.pop(name) for name in names}


@contextlib.contextmanager
def _printing_to(file: TextIO) -> Iterator[None]:
    """Send the output of this process and of those that it starts to a file."""
    with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        kept = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
        finally:
            file.flush()
            for number, old in zip((1, 2), kept, strict=True):
                os.dup2(old, number)
                os.close(old)


def json_rows(output: str) -> list[dict[str, Any]]:
    """The JSON objects of an output that has other lines as well."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@dataclass(frozen=True)
class Project:
    """A repository on disk."""

    root: Path

    def write(self, path: str, text: str) -> None:
        """Write a file, its text dedented."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(text))

    def commit(self, message: str) -> str:
        """Commit everything; the full hash."""
        self.git("add", "-A")
        self.git("commit", "-qm", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        """Output of a git command."""
        identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def popen(self, *arguments: str, before: str = "", **settings: str) -> subprocess.Popen[str]:
        """Start ``lockstep`` in the project, these statements before it and these variables in its environment."""
        return subprocess.Popen(
            [sys.executable, "-c", before + START, *arguments],
            cwd=self.root,
            env={**self._environment(), **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def lockstep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``lockstep`` in the project and in this process; standard error is merged into the output.

        A worker that it starts becomes a fork of a process that an earlier test let import torch.
        """
        with self._as_current() as printed:
            status = run_verb(*arguments)
            printed.seek(0)
            return subprocess.CompletedProcess(arguments, 0 if status is None else status, printed.read())

    @contextlib.contextmanager
    def _as_current(self) -> Iterator[TextIO]:
        """Be a process that was started in the project: its folder, environment, output and modules."""
        own = {path.stem for path in self.root.iterdir()}
        environment, before, folder, path = self._environment(), dict(os.environ), Path.cwd(), list(sys.path)
        # Processes that have imported torch are used again where the variables are the same.
        home = Path(_HOMES.name) / "home"
        home.unlink(missing_ok=True)
        home.symlink_to(environment["HOME"])
        hidden = _take_modules(own)
        with tempfile.TemporaryFile("w+", buffering=1, encoding="utf-8") as printed, _printing_to(printed):
            try:
                os.chdir(self.root)
                os.environ.clear()
                os.environ.update(environment, HOME=str(home))
                importlib.invalidate_caches()
                yield printed
            finally:
                os.environ.clear()
                os.environ.update(before)
                os.chdir(folder)
                sys.path[:] = path
                _take_modules(own)
                sys.modules.update(hidden)

    def tools(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``python -m tools`` in the project; standard error is merged into the output."""
        return self._run("-m", "tools", *arguments)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )

    def _environment(self) -> dict[str, str]:
        repository = str(Path(__file__).parents[1])
        home = self.root.parent / "home"
        home.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        return {**environment, "PYTHONPATH": repository, "HOME": str(home), "COLUMNS": "200"}


def make_project(root: Path, timeout: float = 60.0) -> Project:
    """A repository with one family, one suite and two commits."""
    root.mkdir()
    project = Project(root)
    project.git("init", "-q", "-b", "main")
    project.write(
        "asv.conf.json",
        json.dumps(
            {
                "version": 1,
                "project": "toy",
                "repo": ".",
                "branches": ["main"],
                "environment_type": "lockstep",
                "plugins": [".lockstep.asv"],
                "benchmark_dir": "benchmarks",
                "results_dir": "results",
                # Names of asv's result files do not follow it, and so those of ours must not.
                "hash_length": 10,
                "html_dir": ".asv/html",
                "env_dir": ".asv/env",
                "default_benchmark_timeout": timeout,
                "lockstep": {"packages": ["toy"]},
            }
        ),
    )
    project.write(".gitignore", ".asv\n__pycache__\n")
    project.write("benchmarks/__init__.py", "")
    project.write("benchmarks/product.py", SUITE)
    project.write("toy/__init__.py", "")
    project.commit("Begin")
    project.write("toy/product.py", KERNELS)
    project.commit("Add a product")
    return project
