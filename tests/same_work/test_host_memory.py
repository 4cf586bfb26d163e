"""Which numbers are addresses of this process's memory."""

import pytest

from lockstep.same_work import observe


@pytest.mark.parametrize(
    ("number", "is_host"),
    [
        (0x3F800000, False),  # 1.0 in single precision, which a heap below 4 GiB holds too
        (0x7F5010000010, True),
        (0x7F5010001000, False),
        (0x7F6000000000, False),  # memory of the GPU that the process has mapped
    ],
)
def test_a_number_that_lies_in_a_low_heap_is_no_address(number, is_host, monkeypatch):
    maps = ["3f000000-40000000 rw-p 00000000 00:00 0 [heap]", "7f5010000000-7f5010001000 rw-p 00000000 00:00 0"]
    monkeypatch.setattr(observe, "memory_maps", lambda: [*maps, "7f6000000000-7f6000001000 rw-s 00000000 00:05 9"])
    monkeypatch.setattr(observe, "is_device_memory", lambda address: address >= 0x7F6000000000)
    assert observe._HostMemory()(number) is is_host
