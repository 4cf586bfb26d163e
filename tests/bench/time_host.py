"""Time the host's part of a call of each family's ``best`` and of its baseline on a GPU; print a line a case, in µs.

    python tests/bench/time_host.py [WORDS …] [--all] [--variants NAME …] [--epochs 3]

Without words: the cases of ``CASES``; with words all cases whose suite and label have one of the words, such as ``kda``
or "hgemm M=512"; with ``--all`` those that a history measures. The number is the fastest of ``--epochs`` times eight
batches of ``lockstep.timing.costs.host_time``, which ``lockstep measure --costs host`` records too; nothing is checked
here, and no latency is measured.

Hosts of one GPU model differ, so compare numbers of one run. ``library`` is ``torch.mm`` into a buffer, 8 by 8.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from lockstep.suite.case import Case  # noqa: E402
from lockstep.suite.definition import Suite  # noqa: E402
from lockstep.suite.discovery import load_suites  # noqa: E402
from lockstep.suite.evaluate import in_history, skip_reason  # noqa: E402
from lockstep.suite.variants import load_family  # noqa: E402
from lockstep.timing.arms.argument_rotation import draw_sets  # noqa: E402
from lockstep.timing.arms.bound_arms import Arm, BoundCall  # noqa: E402
from lockstep.timing.arms.shared_buffers import make_arms  # noqa: E402
from lockstep.timing.costs.host_time import CudaSpinner, HostTime  # noqa: E402
from lockstep.timing.device import Device, open_device  # noqa: E402

#: One case or more for each way of a call: one launch, two, a library call, both.
CASES = (
    "grouped.linear B=256,G=12",
    "grouped.mlp B=256,G=12",
    "hgemm M=512",
    "hgemm M=1024",
    "hgemm M=2048,N=2048,K=2048",
    "hgemm M=8192,N=8192,K=512",
    *(f"kda M={M},K=2304,heads=8" for M in (1, 8, 32, 64, 128, 512, 4096)),
    *(f"linear M={M},K=4096,N=2048" for M in (1, 8, 64, 128)),
    "norm_linear M=8,K=4096",
    *(f"w4a16 M={M},K=8192,N=8192,group=128" for M in (1, 16, 64, 256)),
)

#: Sets of arguments. Each has its own tensors, as layers of a model have.
SETS = 4


def main() -> None:
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--all", action="store_true", help="every case of a history")
    parser.add_argument("--variants", nargs="+", default=["best"], help="variants beside the baseline")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no GPU")
    began, device, spinner = time.monotonic(), open_device(), CudaSpinner()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; µs of host time a call")
    a, b, out = (torch.zeros(8, 8, dtype=torch.bfloat16, device=device.torch_device) for _ in range(3))
    product = Arm("library", (BoundCall(torch.mm, {"input": a, "mat2": b, "out": out}),))
    print(f"library  {' '.join(times([product], device, spinner, args.epochs))}")
    for suite, case in chosen(args.words, args.all):
        family = load_family(suite)
        names = [one for one in (suite.baseline, *args.variants) if one in family.variants]
        names = [one for one in dict.fromkeys(names) if not skip_reason(suite, one, case)]
        sets = draw_sets(suite, case, device, SETS, seed=0)
        arms = []
        for name in names:
            try:
                arms += make_arms({name: name}, family, sets, 0)
            except (NotImplementedError, RuntimeError) as error:
                print(f"{suite.name} {case.label}: {name} is not prepared: {error}")
        found = times(arms, device, spinner, args.epochs)
        print(f"{suite.name} {case.label}: {', '.join(found)}", flush=True)
        del sets, arms
        device.release()
    print(f"{time.monotonic() - began:.0f} s")


def times(arms: Sequence[Arm], device: Device, spinner: CudaSpinner, epochs: int) -> list[str]:
    """Return the name of each arm with its µs per call, or with the reason why there are none."""
    meter = HostTime(device, spinner)
    found: dict[str, float] = {}
    for _ in range(epochs):
        for name, [timing] in meter.epoch(arms, lambda stage, arm: None, None).numbers.items():
            found[name] = min(timing.seconds, found.get(name, timing.seconds))
    reasons = {arm.name: meter.reason(arm.name).partition("\n")[0] for arm in arms if arm.name not in found}
    return [f"{arm.name} {1e6 * found[arm.name]:.1f}" if arm.name in found else
            f"{arm.name} n/a ({reasons[arm.name]})" for arm in arms]  # fmt: skip


def chosen(words: Sequence[str], every: bool) -> Iterator[tuple[Suite, Case]]:
    """Yield the suites and cases to time."""
    for suite in load_suites(ROOT / "benchmarks").values():
        for case in suite.cases:
            name = f"{suite.name} {case.label}"
            if in_history(suite, "best", case, "cold") if every else any(word in name for word in words or CASES):
                yield suite, case


if __name__ == "__main__":
    main()
