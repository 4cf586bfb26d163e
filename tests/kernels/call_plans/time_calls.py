"""Time the host's part of planned calls on the stand-in for NVIDIA's driver library; print a line a call, in µs.

    python tests/kernels/call_plans/time_calls.py LIBCUDA

Beside each call that goes to a library stands the time of torch's functions alone, on views that were made before, and
the difference, which is what the plan costs. Products are tiny and computed on the CPU. Launches reach Triton's
launcher, and end in the stand-in. Each number is the fastest of 300 batches. ``test_call_plan.py`` says how to make
LIBCUDA.
"""

import ctypes
import gc
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))

from stand_in import BF16, LIBCUDA

from kernels import grouped, hgemm, kda, linear, w4a16

F16 = torch.float16
CALLS, BATCHES = 100, 300


def fastest(call):
    """Return the µs of a call in its fastest batch."""
    room = ctypes.create_string_buffer(1 << 16)
    for _ in range(CALLS):
        call()
    batches = []
    gc.disable()
    for _ in range(BATCHES):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        batches.append(time.perf_counter() - began)
        LIBCUDA.stand_in_take(room)
    gc.enable()
    return 1e6 * min(batches) / CALLS


def show(name, call, alone=None):
    """Print the time of a call, and the time of the library functions alone."""
    took = fastest(call)
    beside = ""
    if alone is not None:
        library = fastest(alone)
        beside = f"   library alone {library:5.2f}   the plan {took - library:5.2f}"
    print(f"{name:40} {took:6.2f}{beside}", flush=True)


def time_libraries():
    """Time calls that go to torch."""
    a, b, out = (torch.zeros(8, 8, dtype=F16) for _ in range(3))
    show("hgemm, torch", lambda: hgemm.hgemm(a, b), lambda: torch.mm(a, b))
    show("hgemm, torch, out", lambda: hgemm.hgemm(a, b, out=out), lambda: torch.mm(a, b, out=out))
    named = {"a": a, "b": b, "alpha": 1.0, "beta": 0.0, "out": out}
    show("hgemm, torch, as the suite calls", lambda: hgemm.hgemm(**named), lambda: torch.mm(a, b, out=out))
    x, weight, out_x = (torch.zeros(*shape, dtype=BF16) for shape in ((2, 8), (8, 8), (2, 8)))
    show("linear, torch", lambda: linear.linear(x, weight), lambda: torch.nn.functional.linear(x, weight))
    turned = weight.t()
    show("linear, torch, out", lambda: linear.linear(x, weight, out=out_x), lambda: torch.mm(x, turned, out=out_x))
    M, K, H, R = 2, 8, 1, 128
    N = 3 * R + 2 * R + H
    x, w_in, w_fg, whole = torch.zeros(M, K), torch.zeros(N, K), torch.zeros(2, R, R), torch.zeros(M * (N + 2 * R))
    joint, fg = whole[2 * M * R :].view(M, N), whole[: 2 * M * R].view(2, M, R)
    low = joint[:, 3 * R : 5 * R].unflatten(1, (2, R)).transpose(0, 1)
    turned_in, turned_fg = w_in.t(), w_fg.transpose(1, 2)

    def wide():
        torch.mm(x, turned_in, out=joint)

    def both():
        wide()
        torch.bmm(low, turned_fg, out=fg)

    show("kda, torch, out", lambda: kda.kda(x, w_in, w_fg, out=whole, config="torch"), both)
    show("kda, mixed, out", lambda: kda.kda(x, w_in, w_fg, out=whole, config="mixed"), wide)
    x, weight, out_x = (torch.zeros(*shape, dtype=BF16) for shape in ((4, 8), (2, 8, 8), (4, 8)))
    x_b, out_b = x.view(2, 2, 8), out_x.view(2, 2, 8)
    alone = lambda: torch.bmm(x_b, weight, out=out_b)  # noqa: E731
    show("grouped.linear, bmm, out", lambda: grouped.linear(x, weight, out=out_x), alone)


def time_launches():
    """Time calls that launch."""
    x, weight, out = (torch.zeros(*shape, dtype=BF16) for shape in ((8, 4096), (2048, 4096), (8, 2048)))
    show("linear M=8, one launch", lambda: linear.linear(x, weight))
    show("linear M=8, one launch, out", lambda: linear.linear(x, weight, out=out))
    x, w_in, w_fg = (torch.zeros(*shape, dtype=BF16) for shape in ((8, 2304), (3336, 2304), (2, 1024, 128)))
    show("kda M=8, one launch", lambda: kda.kda(x, w_in, w_fg))
    show("kda M=8, two launches", lambda: kda.two_products(x, w_in, w_fg))
    a, b, out_a = (torch.zeros(2048, 2048, dtype=F16) for _ in range(3))
    show("hgemm 2048³, one launch, out", lambda: hgemm.hgemm(a, b, out=out_a))
    codes, scales = torch.zeros(8192, 1024, dtype=torch.uint8), torch.zeros(64, 1024, dtype=F16)
    x, out_w, packed = torch.zeros(8, 8192, dtype=F16), torch.zeros(8, 1024, dtype=F16), w4a16.PREPARE["best"]
    weights = packed(codes, scales)
    show("w4a16 M=8, one launch, out", lambda: w4a16.w4a16(x, **weights, out=out_w))
    x, weight, offsets = torch.zeros(512, 256, dtype=BF16), torch.zeros(2, 256, 256, dtype=BF16), torch.zeros(3).int()
    out_g = torch.zeros(512, 256, dtype=BF16)
    show("grouped.linear ragged, two launches", lambda: grouped.linear(x, weight, offsets, (0, 100, 512), out=out_g))


if __name__ == "__main__":
    torch.set_num_threads(1)
    time_libraries()
    time_launches()
