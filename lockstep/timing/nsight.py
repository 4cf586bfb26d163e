"""Run one arm inside a marked range, for a profiler; nothing is timed here.

The range is an NVTX range that also starts and stops the CUDA profiler (cudaProfilerStart, cudaProfilerStop). Drawing
inputs, packing weights and compiling stay outside it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import torch

from lockstep.suite.case import Case
from lockstep.suite.definition import Suite
from lockstep.suite.inputs import tensors_of
from lockstep.suite.variants import load_family
from lockstep.timing.arms.argument_rotation import draw_sets, set_count, size_of
from lockstep.timing.arms.shared_buffers import make_arms
from lockstep.timing.device import Device

#: Name of the NVTX range.
RANGE = "lockstep"


def commands(suite: str, variant: str, case: str, l2: str, calls: int) -> dict[str, str]:
    """Return, by profiler (ncu, nsys), the command line that profiles a variant at a case.

    ncu replays each kernel several times: ``--cache-control all`` empties the caches before each replay, ``none``
    leaves them as they are. Clocks are left to ``lockstep clocks``. (Nsight Compute CLI and Nsight Systems user
    guides.)
    """
    verb = ["lockstep", "profile", suite, variant, case, "--l2", l2, "--calls", str(calls)]
    report = f"{suite}-{variant}-{case}-{l2}".replace("=", "").replace(",", "-")
    ncu = ["ncu", "--profile-from-start", "off", "--nvtx", "--nvtx-include", f"{RANGE}/", "--set", "full"]
    ncu += ["--clock-control", "none", "--cache-control", "all" if l2 == "cold" else "none", "-f", "-o", report]
    nsys = ["nsys", "profile", "-t", "cuda,nvtx", "--capture-range", "cudaProfilerApi", "--capture-range-end", "stop"]
    nsys += ["--force-overwrite", "true", "-o", report]
    return {name: shlex.join([*head, *verb]) for name, head in (("ncu", ncu), ("nsys", nsys))}


def run_marked(device: Device, suite: Suite, variant: str, case: Case, l2: str, calls: int) -> int:
    """Call the variant ``calls`` times inside an NVTX range, for a profiler; return the number of argument sets.

    In a cold case each call takes the next set. A case that the variant does not support, or that cannot be made cold,
    raises ``NotImplementedError``.
    """
    family = load_family(suite)
    [first] = make_arms({variant: variant}, family, draw_sets(suite, case, device, 1, seed=0), 0)
    touched = size_of(tensors_of([call.arguments for call in first.calls]))
    count = set_count(touched, touched, 0.0, device, l2)
    del first
    [arm] = make_arms({variant: variant}, family, draw_sets(suite, case, device, count, seed=0), 0)
    for call in arm.calls:  # compiles; the sets that are called last stay in the cache for the marked calls
        call()
    device.synchronize()
    order: Sequence[int] = [index % count for index in range(calls)]
    if device.kind == "cuda":
        with torch.cuda.profiler.profile(), torch.cuda.nvtx.range(RANGE):
            for index in order:
                arm.calls[index]()
            device.synchronize()
    else:
        for index in order:
            arm.calls[index]()
    return count
