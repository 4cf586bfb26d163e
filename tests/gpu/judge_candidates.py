"""Judge candidates on the GPU, and one with the incumbent's own code: ``python -m tests.gpu.judge_candidates``.

It prints a line for each verdict, and the standard deviation between pairs of processes. It needs no pytest.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lockstep.referee.error_rate import Search
from lockstep.referee.judge import Judge
from lockstep.referee.loop import NoVerdict, Referee
from lockstep.referee.problem_definition import ProblemDefinition, Submission
from lockstep.suite.definition import SuiteError

sys.path.insert(0, str(Path(__file__).parents[1] / "referee"))

from programs import LINEAR, PROGRAMS, Program, judged, model, new

LARGE = "torch.rand(4096, 4096), torch.rand(4096, 4096)"

TRITON = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.where(value > 0, value, 0.0) * 2 + 1, mask=at < n)
"""

MINE: dict[str, Program] = {
    "triton": judged(
        model("return torch.relu(x) * 2 + 1", "torch.randn(8192, 8192)"),
        fused=(
            new(
                "y = torch.empty_like(x)\nn = x.numel()\nkernel[(triton.cdiv(n, 1024),)](x, y, n, 1024)\nreturn y",
                before=TRITON,
            ),
            True,
        ),
        half=(
            new(
                "y = torch.empty_like(x)\nn = x.numel()\nkernel[(triton.cdiv(n // 2, 1024),)](x, y, n, 1024)\nreturn y",
                before=TRITON,
            ),
            False,
        ),
    ),
    "product": judged(
        model("return torch.matmul(x, w)", LARGE),
        same=(new("return torch.matmul(x, w)"), True),
        tf32=(new("torch.backends.cuda.matmul.allow_tf32 = True\nreturn torch.matmul(x, w)"), False),
        bfloat16=(new("return (x.bfloat16() @ w.bfloat16()).float()"), False),
        lazy=(new("return torch.zeros_like(x)"), False),
    ),
    # leaves a kernel on the GPU that works while the rival runs
    "keeps the GPU": judged(
        model("return F.linear(x, w)", LINEAR),
        busy=(
            new(
                "if not torch.cuda.is_current_stream_capturing():\n    return F.linear(x, w)\n"
                "y = F.linear(x, w)\nside.wait_stream(torch.cuda.current_stream())\n"
                "with torch.cuda.stream(side):\n    torch.cuda._sleep(1_000_000)\n"
                "torch.cuda.current_stream().wait_stream(side)\nreturn y",
                before="side = torch.cuda.Stream()\n",
            ),
            False,
        ),
        thread=(
            new(
                "return F.linear(x, w)",
                before="import threading\n\n\ndef works():\n    side = torch.cuda.Stream()\n"
                "    with torch.cuda.stream(side):\n        torch.cuda._sleep(40_000_000_000)\n\n\n"
                "threading.Thread(target=works, daemon=True).start()\n",
            ),
            False,
        ),
    ),
    **{name: PROGRAMS[name] for name in ("sticky memo", "layers of the rival", "weights", "only positive")},
}


def main() -> int:
    """Judge all, then the incumbent of "triton" against its own text in ten pairs of processes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, program in MINE.items():
            for file, text in program.files.items():
                Path(folder, file).write_text(text)
            source = ProblemDefinition("kernelbench", str(Path(folder, "problem.py")))
            started = time.monotonic()
            try:
                referee = Referee(source, Search(), 60.0, keep=True)
                referee.open()
                print(f"{name}: opened in {time.monotonic() - started:.1f} s", referee.notes, flush=True)
                for candidate, honest in program.candidates.items():
                    verdict = referee.judge(referee.submission_of(str(Path(folder, f"{candidate}.py")), candidate))
                    print("  honest" if honest else "  exploit", verdict.sentence(), verdict.rule, flush=True)
            except (NoVerdict, SuiteError) as error:
                print(f"  {error}", flush=True)
            finally:
                referee.close()
        Path(folder, "problem.py").write_text(MINE["triton"].files["problem.py"])
        twin = Path(folder, "twin.py")
        twin.write_text(new("return torch.relu(x) * 2 + 1"))
        judge = Judge(ProblemDefinition("kernelbench", str(Path(folder, "problem.py"))), 60.0)
        judge.open(None)
        ratios = []
        for _ in range(6):
            submission = Submission("twin", str(twin))
            judge.measure(submission, None, "screen")
            [compared] = judge.measure(submission, None, "final")
            ratios.append(compared.evidence.log_ratio)
            spread = compared.evidence.error * math.sqrt(compared.evidence.epochs)
            print(f"A/A {math.expm1(ratios[-1]):+.3%}, an epoch's deviation {spread:.3%}", flush=True)
        judge.close()
        print(f"A/A: deviation between pairs of processes {statistics.stdev(ratios):.3%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
