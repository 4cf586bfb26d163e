"""Suites that ``lockstep adopt`` writes for benchmark scripts: they run as written. Times are not judged."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lockstep.scripts.call_source import source_of
from tests.verb import run_verb

KERNELS = """
    import torch

    class Norm(torch.nn.Module):
        def __init__(self, size, eps=1e-6, *, bias=False):
            super().__init__()
            self.weight, self.eps = torch.nn.Parameter(torch.rand(size)), eps

        def forward(self, x):
            return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight

    def lengths(offsets, x, width):
        return x.reshape(-1, width).sum(-1) + offsets.diff().sum()
"""

SCRIPT = """
    from functools import partial

    import torch
    import triton
    import tiny_kernels

    def call(*parts):
        x, layer = parts
        return layer(x)

    class Plain(torch.nn.Module):
        def __init__(self, size: int, eps):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(size))
            self.eps = eps

        def forward(self, x):
            return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)

    @triton.testing.perf_report(
        triton.testing.Benchmark(
            x_names=["M"], x_vals=[32, 8, 16], line_arg="provider", plot_name="norm", args={"N": 64},
            line_vals=["ours", "plain", "backward", "alone", "ragged", "random", "opaque"],
            line_names=["Ours", "plain", "Ours backward", "alone", "ragged", "random", "opaque"],
        )
    )
    def bench(M, N, provider):
        x = torch.randn(N, M, requires_grad=provider != "ours").t()
        layer = Plain(N, 1e-6) if provider == "plain" else tiny_kernels.Norm(N, eps=1e-6)
        parts, gradient, file = (x, layer), torch.randn(M, N), open(__file__)
        if provider in ("ours", "plain"):
            fn = lambda: call(*parts)
        elif provider == "backward":
            fn = lambda: layer(x).backward(gradient)
        elif provider == "alone":
            y = layer(x)
            fn = lambda: y.backward(gradient, retain_graph=True)
        elif provider == "ragged":
            fn = partial(tiny_kernels.lengths, torch.tensor([0, 3, M]), x.detach(), M // 2)
        elif provider == "random":
            fn = lambda: torch.rand(M)
        else:
            fn = lambda: file.fileno()
        return triton.testing.do_bench(fn)

    if __name__ == "__main__":
        bench.run()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in {"tiny_kernels/__init__.py": KERNELS, "benchmarks/bench_norm.py": SCRIPT}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(textwrap.dedent(text))
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Write"]):
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_written_runs_as_written(folder, capfd):
    assert run_verb("adopt", "benchmarks/bench_norm.py") == 0
    out = capfd.readouterr().err
    assert "left out: alone: the backward alone of a graph that the script made before" in out
    assert "left out: random: its result changes from call to call" in out
    assert "left out: opaque: file is a _io.TextIOWrapper, which has no source" in out
    text = (folder / "lockstep_suites/bench_norm.py").read_text()
    # Variants with the same result share a suite, and the one without the package under test is its baseline.
    assert re.findall(r'op = "(\w+)"\n    version = "1"\n    baseline = "(\w+)"', text) == [
        ("ours", "plain"),
        ("ours_backward", "ours_backward"),
        ("ragged", "ragged"),
    ]
    assert "cases = (Case(M=32, N=64), Case(M=8, N=64), Case(M=16, N=64),)\n    quick = (Case(M=8, N=64),)" in text
    # The order of the axes in memory is kept; sizes are axes; constants that differ are expressions of axes.
    assert '"x": new.normal(N, M, dtype="float32").permute(1, 0),' in text
    assert "norm = Norm(size=64)" in text.replace("layer", "norm")
    assert "return lengths(call_0, call_1, M // 2)" in text
    assert '"call_0": new.tensor({(8): [0, 3, 8], (16): [0, 3, 16]}[M], dtype="int64")' in text
    settings = json.loads((folder / "asv.conf.json").read_text())
    assert settings.pop("lockstep") == {"packages": ["tiny_kernels"]}
    page = (Path(__file__).parents[2] / "docs/adopting.md").read_text(encoding="utf-8")
    shown = json.loads(page.split("```json\n")[1].split("```")[0])
    assert {name: settings.get(name) for name in shown} == shown | {"project": folder.name, "lockstep": None}
    assert run_verb("measure", "bench_norm", "--quick", "--json") == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert [(one["suite"], one["variant"], one["state"]) for one in records] == [
        ("bench_norm.ours", "plain", "ok"),
        ("bench_norm.ours", "ours", "ok"),
        ("bench_norm.ours_backward", "ours_backward", "ok"),
        ("bench_norm.ragged", "ragged", "ok"),
    ]
    assert run_verb("check") == 0
    assert run_verb("adopt", "benchmarks") == 4  # nothing is overwritten


def test_a_statement_of_torchs_timer_is_written(folder, monkeypatch):
    (folder / "benchmarks/bench_norm.py").write_text(
        textwrap.dedent("""
        import torch
        from tiny_kernels import lengths
        from torch.utils.benchmark import Timer

        for M in (8, 16):
            names = {"f": lengths, "x": torch.tensor([0, 3, M]), "m": M}
            Timer("f(x, y, m // 2)", "y = torch.ones(m, 4)", globals=names, label="f", sub_label=f"M={M}").timeit()
        """)
    )
    assert run_verb("adopt", "benchmarks/bench_norm.py") == 0
    text = (folder / "lockstep_suites/bench_norm.py").read_text()
    assert "from tiny_kernels import lengths" in text
    for name in [name for name in sys.modules if name.startswith("lockstep_suites")]:
        monkeypatch.delitem(sys.modules, name)  # that of another test
    assert run_verb("measure", "bench_norm", "--quick") == 0


def test_what_has_no_module_is_copied_and_a_case_of_another_text_is_told(folder, capfd):
    (folder / "benchmarks/bench_norm.py").write_text(
        textwrap.dedent("""
        import torch
        import tiny_kernels
        from triton.testing import do_bench

        def double(x):
            return x + x

        double.__module__ = "part_of_an_extension"

        def bench(M):
            x = torch.ones(M, 4)
            do_bench((lambda: double(x).neg()) if M == 8 else (lambda: double(x)))

        for M in (8, 16):
            bench(M)
        """)
    )
    assert run_verb("adopt", "benchmarks/bench_norm.py") == 0
    assert "left out: bench at M=16: its text differs from that of another case" in capfd.readouterr().err
    assert "return x + x" in (folder / "lockstep_suites/bench_norm.py").read_text()


def test_a_script_without_a_call_that_can_be_written_leaves_no_file(folder, capfd):
    text = (folder / "benchmarks/bench_norm.py").read_text()
    (folder / "benchmarks/bench_norm.py").write_text(re.sub(r"line_vals=\[.*\]", 'line_vals=["opaque"]', text))
    assert run_verb("adopt", "benchmarks") == 3
    assert "left out: Ours: file is a _io.TextIOWrapper, which has no source" in capfd.readouterr().err
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == ["benchmarks", "tiny_kernels"]


class Config:
    """As transformers' configurations: made of keywords, and known by what differs from the defaults."""

    def __init__(self, size=1, **kwargs):
        self.size = size

    def to_diff_dict(self):
        return {"size": self.size, "model_type": "tiny"}


def test_a_configuration_of_transformers_is_written_by_what_differs():
    config = Config(size=3)
    source = source_of(lambda: [config.size], ())
    assert source.body == f"from {__name__} import Config\nreturn [Config(size=3).size]"
    assert source.result("cpu")[1] == [3]


def test_a_script_is_adopted_with_its_arguments(folder):
    script = folder / "benchmarks/bench_norm.py"
    text = script.read_text()
    assert "x_vals=" in text
    script.write_text(
        "import sys\n\nSIZES = [int(word) for word in sys.argv[1:]]\n" + re.sub(r"x_vals=\[.*?\]", "x_vals=SIZES", text)
    )
    assert run_verb("adopt", "benchmarks/bench_norm.py 24") == 0
    assert "Case(M=24" in (folder / "lockstep_suites/bench_norm.py").read_text()


def test_suites_of_several_reports_have_the_names_of_the_reports(folder):
    """They were ``bench_norm.torch`` and ``bench_norm.torch_2``, classes ``Torch`` and ``Torch2``."""
    report = """
        @triton.testing.perf_report(
            triton.testing.Benchmark(
                x_names=["M"], x_vals=[8, 16], line_arg="provider", line_vals=["ours", "torch"],
                line_names=["ours", "torch"], plot_name="", args={},
            )
        )
        def NAME(M, provider):
            x = torch.randn(M, 64)
            triton.testing.do_bench((lambda: tiny_kernels.FUNCTION(x)) if provider == "ours" else lambda: x OPERATION)
    """
    kernels = "def double(x):\n    return x + x\n\ndef half(x):\n    return x / 2\n"
    (folder / "tiny_kernels/__init__.py").write_text(kernels)
    text = "import torch\nimport triton\nimport tiny_kernels\n"
    for names in ("twice", "double", "* 2"), ("rms_norm", "half", "* 0.5"):
        words = dict(zip(("NAME", "FUNCTION", "OPERATION"), names, strict=True))
        text += textwrap.dedent(re.sub("|".join(words), lambda found, of=words: of[found[0]], report))
    (folder / "benchmarks/bench_norm.py").write_text(f"{text}\ntwice.run()\nrms_norm.run()\n")
    assert run_verb("adopt", "benchmarks/bench_norm.py") == 0
    written = (folder / "lockstep_suites/bench_norm.py").read_text()
    named = re.findall(r'class (\w+)\(Suite\):\n    op = "(\w+)"\n    version = "1"\n    baseline = "(\w+)"', written)
    assert named == [("Twice", "twice", "torch"), ("RmsNorm", "rms_norm", "torch")]
    assert re.findall(r"def (ours|torch)\(", written) == ["ours", "torch"] * 2
    assert written.count("cases = (Case(M=8), Case(M=16),)") == 2
