"""Where a kernel can run, and how many multiprocessors it has.

Triton kernels run on CUDA tensors, and on CPU tensors under Triton's interpreter (tests). On meta tensors they are
compiled without a launch, which needs no GPU. Any other device raises an error that names the variant.
"""

from __future__ import annotations

import functools
import os

import torch
import triton

#: Streaming multiprocessors assumed on a CPU (Triton's interpreter): an H100's or H200's.
SM_COUNT_WITHOUT_GPU = 132


def interpreted() -> bool:
    """Return whether Triton's interpreter runs kernels, by the variable that ``triton.knobs.runtime.interpret`` reads.

    Kernels must not read the knob itself: code may assign it, so a trace could not know its value and would prove
    nothing.
    """
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def require_triton(tensor: torch.Tensor, variant: str) -> None:
    """Raise unless a Triton kernel can run on this tensor's device.

    Raises:
        NotImplementedError: the tensor is on a CPU and Triton's interpreter is off. The suites show the variant as
            n/a.
    """
    if tensor.device.type == "cpu" and not interpreted():
        raise NotImplementedError(
            f"{variant} is a Triton kernel and needs a CUDA tensor, got a CPU tensor (on a CPU set TRITON_INTERPRET=1)"
        )


@functools.cache
def sm_count(device: torch.device) -> int:
    """Return the number of streaming multiprocessors of ``device``; for a CPU return the number of an H200.

    For "meta" return the number of the target that Triton compiles for.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    if device.type == "meta":
        driver = triton.runtime.driver.active
        return int(driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"])
    return SM_COUNT_WITHOUT_GPU


def capability(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of ``device``, e.g. ``(9, 0)`` for Hopper; ``(0, 0)`` if it is not an NVIDIA GPU.

    For "meta" return the capability of Triton's compile target: some kernels choose their code by the capability.
    """
    if torch.version.hip is not None:
        return 0, 0  # torch would return the numbers of AMD's architecture: (9, 4) for an MI300X
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return int(major), int(minor)
    if device.type == "meta":
        arch = triton.runtime.driver.active.get_current_target().arch
        return int(arch) // 10, int(arch) % 10
    return 0, 0


def require_wgmma(tensor: torch.Tensor, variant: str) -> None:
    """Raise unless this tensor's GPU has ``wgmma``.

    Raises:
        NotImplementedError: the device is not a Hopper GPU.
    """
    if capability(tensor.device)[0] != 9:
        raise NotImplementedError(f"{variant} uses wgmma, which only Hopper GPUs have (compute capability 9.0)")


def capturing(device: torch.device) -> bool:
    """Return whether a CUDA graph is being captured on the current stream; False on a CPU and on "meta"."""
    return device.type not in ("cpu", "meta") and torch.cuda.is_current_stream_capturing()
