"""Triton's driver on a stand-in for libcuda, and what launches gave it; for scripts whose first argument is its path.

Everything is real but the GPU: torch, Triton's compiler, its launcher and the kernels. Tensors lie on the CPU and claim
to be on ``cuda:0``. The stand-in keeps the grid, stream, attributes and argument bytes of each launch.
"""

import ctypes
import sys
import threading
from types import SimpleNamespace

import torch
import triton
from torch._C._dynamo import guards
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime.jit import JITFunction

from kernels.common import tables

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
torch.Tensor.is_cuda = property(lambda self: True)


def _on_cpu(make):
    return lambda *args, device=None, **kwargs: make(*args, **kwargs)


guards._empty_strided_cuda = guards._empty_strided_cpu
torch._C._cuda_getDevice = DRIVER.get_current_device
for made in ("empty", "empty_strided", "zeros", "full"):
    setattr(torch, made, _on_cpu(getattr(torch, made)))
torch.cuda.get_device_properties = lambda device: SimpleNamespace(multi_processor_count=132)
torch.cuda.get_device_capability = lambda device=None: (9, 0)
torch.cuda.get_device_name = lambda device=None: "NVIDIA H200"
torch.cuda.is_current_stream_capturing = lambda: False

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
                return f"{name}+{address - tensor.data_ptr()}"
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


def forget():
    """Forget every plan, as after a change of the tables."""
    for changed in tables.ON_CHANGE:
        changed()
