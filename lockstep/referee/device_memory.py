"""Share GPU memory between two processes through a file descriptor, which works across namespaces.

CUDA's older handles (``cudaIpcGetMemHandle``) need a common process id namespace, which a sandbox takes away. Source:
CUDA driver API, "Virtual Memory Management"; the numbers are those of cuda.h.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

#: ``CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR``, ``CU_MEM_ALLOCATION_TYPE_PINNED``, ``CU_MEM_LOCATION_TYPE_DEVICE`` and
#: ``CU_MEM_ACCESS_FLAGS_PROT_READWRITE``.
_FD, _PINNED, _DEVICE, _READ_WRITE = 1, 1, 1, 3


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """``CUmemAllocationProp``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """``CUmemAccessDesc``."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


def allocate(size: int, device: torch.device) -> tuple[int, int, int]:
    """Allocate at least ``size`` bytes; return the address, the number of bytes, and a file descriptor to share."""
    place = _Location(_DEVICE, device.index or 0)
    properties = _Properties(_PINNED, _FD, place)
    granularity, handle, fd = ctypes.c_size_t(), ctypes.c_ulonglong(), ctypes.c_int(-1)
    torch.zeros(1, device=device)  # makes the device's context current
    _call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties), 0)
    size = -(-size // granularity.value) * granularity.value
    _call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_ulonglong(0))
    _call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _FD, ctypes.c_ulonglong(0))
    return _mapped(handle, size, place), size, fd.value


def imported(fd: int, size: int, device: torch.device) -> int:
    """Map the memory of another process that allocated it with ``allocate``; return its address here."""
    torch.zeros(1, device=device)
    handle = ctypes.c_ulonglong()
    _call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), _FD)
    return _mapped(handle, size, _Location(_DEVICE, device.index or 0))


def free(address: int, size: int) -> None:
    """Unmap the memory in this process. The memory is freed once no process maps it."""
    _call("cuMemUnmap", ctypes.c_ulonglong(address), ctypes.c_size_t(size))
    _call("cuMemAddressFree", ctypes.c_ulonglong(address), ctypes.c_size_t(size))


def flat(address: int, size: int, device: torch.device) -> torch.Tensor:
    """Return the bytes at this address as a tensor, uint8 and flat."""
    return torch.as_tensor(_Memory(address, size), device=device)


class _Memory:
    """Memory as the CUDA array interface describes it (version 3, Numba's documentation)."""

    def __init__(self, address: int, size: int) -> None:
        data = {"shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3}
        self.__cuda_array_interface__: dict[str, Any] = data


def _mapped(handle: ctypes.c_ulonglong, size: int, place: _Location) -> int:
    """Map an allocation, and release the handle, so that the memory lives as long as it is mapped."""
    address, length, none = ctypes.c_ulonglong(), ctypes.c_size_t(size), ctypes.c_ulonglong(0)
    _call("cuMemAddressReserve", ctypes.byref(address), length, ctypes.c_size_t(0), none, none)
    _call("cuMemMap", address, length, ctypes.c_size_t(0), handle, none)
    access = _Access(place, _READ_WRITE)
    _call("cuMemSetAccess", address, length, ctypes.byref(access), ctypes.c_size_t(1))
    _call("cuMemRelease", handle)
    return address.value


def _call(name: str, *arguments: Any) -> None:
    if status := getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments):
        raise RuntimeError(f"{name} failed with CUresult {status}")
