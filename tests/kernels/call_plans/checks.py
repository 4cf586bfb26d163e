"""Checks of planned calls, run by test_call_plan.py in a process of its own: Triton's driver on a stand-in for libcuda.

Everything is real but the GPU: torch, Triton's compiler, its launcher and the kernels. Tensors lie on the CPU and claim
to be on ``cuda:0``. The stand-in keeps the grid, stream, attributes and argument bytes of each launch.
"""

import ctypes
import sys
import threading
import traceback
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime.jit import JITFunction

LIBCUDA = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
CUDA = torch.device("cuda", 0)
BF16 = torch.bfloat16


class Driver(CudaDriver):
    """Triton's, with a current device and a stream for each thread."""

    def __init__(self):
        super().__init__()
        self.device, self.local = 0, threading.local()
        self.get_current_device = lambda: self.device
        self.get_current_stream = lambda device: getattr(self.local, "stream", 7)
        self.get_device_capability = lambda device=None: (9, 0)


DRIVER = Driver()
triton.runtime.driver.set_active(DRIVER)
torch.Tensor.device = property(lambda self: CUDA)


def _on_cpu(make):
    return lambda *args, device=None, **kwargs: make(*args, **kwargs)


for made in ("empty", "zeros", "full"):
    setattr(torch, made, _on_cpu(getattr(torch, made)))
torch.cuda.get_device_properties = lambda device: SimpleNamespace(multi_processor_count=132)
torch.cuda.get_device_capability = lambda device=None: (9, 0)
torch.cuda.get_device_name = lambda device=None: "NVIDIA H200"
torch.cuda.is_current_stream_capturing = lambda: False

from kernels import linear  # noqa: E402
from kernels.common import call_plan, workspace  # noqa: E402

SIZES = {"i32": 4, "i64": 8, "fp32": 4}


class Launches:
    """What the stand-in was given in a block, by ``lines()``; addresses are named after the tensors that have them."""

    def __init__(self, **tensors):
        self.tensors = tensors

    def __enter__(self):
        self.take()
        return self

    def __exit__(self, *_):
        self.found = self.take()

    def take(self):
        buffer = ctypes.create_string_buffer(1 << 16)
        length = LIBCUDA.stand_in_take(buffer)
        return buffer.raw[:length]

    def named(self, address):
        for name, tensor in self.tensors.items():
            start = tensor.untyped_storage().data_ptr()
            if start <= address < start + tensor.untyped_storage().nbytes():
                return f"{name}+{address - start}"
        return "fresh" if address else "null"

    def lines(self):
        found, at, raw = [], 0, self.found
        while at < len(raw):
            head = raw[at : at + 28]
            stream, function = (int.from_bytes(raw[at + 28 + 8 * i :][:8], "little") for i in range(2))
            attributes = int.from_bytes(raw[at + 44 :][:4], "little")
            start = at + 48 + 8 * attributes
            launch = [head, raw[at + 48 : start], stream, function]
            at = start
            for size in LAYOUTS[function]:
                part = raw[at : at + size]
                at += size
                if size in (8, 128):
                    address = int.from_bytes(part[:8], "little")
                    # A size of a descriptor is no address: it is small.
                    launch.append((self.named(address) if address > 1 << 20 or not address else address, part[8:]))
                else:
                    launch.append(part)
            found.append(launch)
        return found


LAYOUTS = {}
_run = JITFunction.run


def _laid_out(self, *args, **kwargs):
    """Tell the stand-in how many bytes each argument of a kernel has."""
    compiled = _run(self, *args, **kwargs)
    sizes = []
    for kind in compiled.src.signature.values():
        if kind.startswith("tensordesc"):
            rank = kind[kind.index("[") : kind.index("]")].count(",") + 1
            sizes += [128, *[4] * rank, *[8] * rank]
        elif kind != "constexpr":
            sizes.append(8 if kind.startswith("*") else SIZES[kind])
    sizes += [8, 8]
    LAYOUTS[compiled.function] = sizes
    LIBCUDA.stand_in_layout(ctypes.c_uint64(compiled.function), (ctypes.c_int * len(sizes))(*sizes), len(sizes))
    return compiled


def ordinary(function, *args, **kwargs):
    """Call a planned function while its launches are observed, which is without a plan."""
    JITFunction.run = _laid_out
    try:
        return function(*args, **kwargs)
    finally:
        JITFunction.run = _run


def plans_of(function):
    cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
    return {key: plan for key, plan in cells["plans"].cell_contents.items() if key != call_plan._NO_GPU}


def planned(function):
    return [plan for plan in plans_of(function).values() if plan is not None]


def inputs(M=8, K=4096, N=2048, dtype=BF16):
    return torch.zeros(M, K, dtype=dtype), torch.zeros(N, K, dtype=dtype)


def assert_same(function, *args, **kwargs):
    """The plan launches what the ordinary call does: every byte but addresses of fresh memory."""
    ordinary(function, *args, **kwargs)
    tensors = {f"argument {i}": one for i, one in enumerate((*args, *kwargs.values())) if isinstance(one, torch.Tensor)}
    tensors |= {f"buffer {i}": one for i, one in enumerate(workspace.BUFFERS.values())}
    with Launches(**tensors) as wanted:
        expected = ordinary(function, *args, **kwargs)
    with Launches(**tensors) as recorded:
        function(*args, **kwargs)
    before = len(planned(function))
    with Launches(**tensors) as replayed:
        result = function(*args, **kwargs)
    assert before
    assert len(planned(function)) == before
    assert wanted.lines()
    assert wanted.lines() == recorded.lines() == replayed.lines(), (wanted.lines(), replayed.lines())
    for one, other in zip(flat(expected), flat(result), strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
    return replayed.lines()


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def check_a_plan_launches_what_the_ordinary_call_launches():
    x, weight = inputs()
    assert_same(linear.split_k_pdl, x, weight)  # partial sums in fresh memory, counters in a workspace
    assert_same(linear.stream, x, weight)  # tensor descriptors and the mailbox
    assert_same(linear.gemv, *inputs(1), torch.zeros(2048, dtype=BF16))
    assert_same(linear.linear, x, weight, out=torch.zeros(8, 2048, dtype=BF16))


def check_the_result_is_new_memory_or_the_buffer_that_was_given():
    x, weight = inputs()
    for _ in range(3):
        one, other = linear.stream(x, weight), linear.stream(x, weight)
        assert one.data_ptr() != other.data_ptr()
    out = torch.zeros(8, 2048, dtype=BF16)
    assert all(linear.stream(x, weight, out=out) is out for _ in range(3))


def check_other_tensors_of_the_same_shape_get_their_own_addresses():
    x, weight = inputs()
    linear.stream(x, weight)
    for _ in range(3):
        x, weight = inputs()
        assert_same(linear.stream, x, weight)
    assert len(planned(linear.stream)) == 1


def check_memory_that_was_freed_and_given_out_again_is_described_for_its_new_shape():
    memory = torch.zeros(1 << 23, dtype=BF16)
    for K, N in ((4096, 2048), (2048, 4096)) * 2:
        assert_same(linear.stream, torch.zeros(8, K, dtype=BF16), memory[: N * K].view(N, K))


def check_alignment_is_a_fact():
    x, weight = inputs()
    linear.split_k(x, weight)
    whole = torch.zeros(8 * 4096 + 1, dtype=BF16)
    before = len(planned(linear.split_k))
    assert_same(linear.split_k, whole[1:].view(8, 4096), weight)
    assert len(planned(linear.split_k)) == before + 1
    with pytest.raises(NotImplementedError, match="multiples of 16"):
        linear.stream(whole[1:].view(8, 4096), weight)


def check_errors_stay_those_of_the_function():
    x, weight = inputs()
    linear.stream(x, weight)
    for wrong, words in (
        ((x.t().contiguous().t(), weight), "x must be contiguous"),
        ((x, weight[:, :2048].contiguous()), "weight must have shape"),
        ((x.half(), weight), "weight must be float16"),
        ((x, [weight]), "weight must be a tensor"),
        ((x, weight, None, 3), "positional argument"),
    ):
        for _ in range(2):
            with pytest.raises((ValueError, TypeError), match=words) as raised:
                linear.stream(*wrong)
            assert raised.value.__context__ is None


def check_the_current_device_is_a_fact():
    x, weight = inputs()
    linear.stream(x, weight)
    before = len(planned(linear.stream))
    DRIVER.device = 1
    try:
        linear.stream(x, weight)
        linear.stream(x, weight)
    finally:
        DRIVER.device = 0
    assert len(planned(linear.stream)) == before + 1
    one, other = planned(linear.stream)[-2:]
    assert one.steps is not other.steps


def check_the_stream_is_that_of_the_thread():
    x, weight = inputs()
    linear.stream(x, weight)
    linear.stream(x, weight)
    ordinary(linear.stream, x, weight)
    failures = []

    def call(stream):
        DRIVER.local.stream = stream
        try:
            for _ in range(20):
                assert linear.stream(x, weight).shape == (8, 2048)
        except BaseException as failure:
            failures.append(failure)

    with Launches(x=x, weight=weight) as launches:
        threads = [threading.Thread(target=call, args=(100 + i,)) for i in range(4)]
        [one.start() for one in threads]
        [one.join() for one in threads]
    assert not failures
    assert {line[2] for line in launches.lines()} <= {100, 101, 102, 103}
    assert launches.lines()


def check_threads_that_plan_at_once_do_not_record_each_other():
    call_plan.forget()
    shapes = [(8, 4096, 2048), (8, 2048, 4096), (16, 4096, 2048), (4, 1024, 1024)]
    given = {shape: inputs(*shape) for shape in shapes}
    for shape in shapes:
        ordinary(linear.split_k, *given[shape])
    threads = [threading.Thread(target=lambda shape=shape: linear.split_k(*given[shape])) for shape in shapes]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert [len(plan.steps) for plan in planned(linear.split_k)] == [1] * 4
    for shape in shapes:
        assert_same(linear.split_k, *given[shape])


def check_a_workspace_that_was_moved_is_found():
    x, weight = inputs()
    assert_same(linear.stream, x, weight)
    [key] = [key for key in workspace.BUFFERS if "mailbox" in key[0]]
    kept = workspace.BUFFERS[key]
    workspace.BUFFERS[key] = kept.clone()
    with Launches(new=workspace.BUFFERS[key]) as launches:
        linear.stream(x, weight)
    assert any(part[0] == "new+0" for part in launches.lines()[0][4:] if isinstance(part, tuple))
    workspace.BUFFERS[key] = kept


def check_parameters_and_gradients_change_nothing():
    x, weight = inputs()
    parameter = torch.nn.Parameter(weight)
    assert_same(linear.stream, x.requires_grad_(), parameter)
    assert not linear.stream(x, parameter).requires_grad


def check_a_launch_that_is_observed_or_hooked_is_never_planned():
    x, weight = inputs()
    linear.stream(x, weight)
    linear.stream(x, weight)
    seen = []

    def note(self, *args, **kwargs):
        seen.append(self)
        return _run(self, *args, **kwargs)

    JITFunction.run = note
    linear.stream(x, weight)
    JITFunction.run = _run
    assert len(seen) == 1
    enter = triton.knobs.runtime.launch_enter_hook
    enter.add(lambda metadata: seen.append(metadata))
    linear.stream(x, weight)
    enter.calls.clear()
    assert len(seen) == 2


@triton.jit
def _copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n), at < n)


def check_a_call_that_does_more_than_launch_has_no_plan():
    calls = []

    def _launched(x, out):
        call_plan.launch_kernel(_copy, (1,), x, out, x.numel(), BLOCK=128)

    @call_plan.planned
    def adds(x):
        calls.append(1)
        out = torch.empty_like(x)
        _launched(x, out)
        return out + 1

    @call_plan.planned
    def fills(x):
        calls.append(1)
        out = torch.zeros(x.shape)
        _launched(x, out)
        return out

    elsewhere = torch.zeros(100)

    @call_plan.planned
    def closes(x):
        calls.append(1)
        _launched(x, elsewhere)
        return x

    x = torch.zeros(100)
    for function in (adds, fills, closes):
        calls.clear()
        for _ in range(3):
            function(x)
        assert len(calls) == 3
        assert list(plans_of(function).values()) == [None]


def check_arguments_that_are_one_tensor_are_not_mistaken_for_two():
    @call_plan.planned
    def copies(x, y):
        call_plan.launch_kernel(_copy, (1,), x, y, x.numel(), BLOCK=128)
        return y

    x, y = torch.zeros(100), torch.zeros(100)
    copies(x, x)
    copies(x, x)
    assert not plans_of(copies)
    assert_same(copies, x, y)
    lines = assert_same(copies, y, x)
    assert [part[0] for part in lines[0][4:] if isinstance(part, tuple)][:2] == ["argument 0+0", "argument 1+0"]


def check_views_of_the_output_lie_in_it():
    @call_plan.planned
    def halves(x, out=None):
        out = x.new_empty(2 * x.numel()) if out is None else out
        left, right = out.split(x.numel())
        call_plan.launch_kernel(_copy, (1,), x, left, x.numel(), BLOCK=128)
        call_plan.launch_kernel(_copy, (1,), x, right, x.numel(), BLOCK=128)
        return left.view(4, 25), right

    x = torch.zeros(100)
    assert_same(halves, x)
    out = torch.zeros(300)[100:]
    halves(x, out=out)
    left, right = halves(x, out=out)
    assert left.data_ptr() == out.data_ptr()
    assert right.data_ptr() == out.data_ptr() + 400
    lines = assert_same(halves, x, out=out)
    assert [line[5][0] for line in lines] == ["argument 1+400", "argument 1+800"]


def check_new_tables_are_followed():
    x, weight = inputs()
    linear.stream(x, weight)
    call_plan.forget()
    assert not planned(linear.stream)
    assert_same(linear.stream, x, weight)


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            call_plan.forget()
            try:
                check()
                print(f"{name} ok", flush=True)
            except BaseException:
                print(f"{name} failed\n{traceback.format_exc()}", flush=True)
