"""What the kernels ask of their GPU."""

import torch

from kernels.common.devices import capability
from kernels.common.pdl import FIRST, LAST, NEVER, order_of


def test_a_gpu_that_nvidia_did_not_make_has_no_compute_capability(monkeypatch):
    """torch for ROCm answers (9, 4) for an MI300X, which has nothing of a Hopper GPU."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))
    assert capability(torch.device("cuda", 0)) == (9, 4)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert capability(torch.device("cuda", 0)) == (0, 0)


def test_a_launch_waits_only_where_gpus_can(monkeypatch):
    assert order_of(torch.empty(0), follows=True) == NEVER
    gpu = torch.empty(0, device="meta")
    for found, expected in (((8, 0), [NEVER, NEVER]), ((9, 0), [LAST, FIRST]), ((12, 0), [LAST, FIRST])):
        monkeypatch.setattr("kernels.common.pdl.capability", lambda device, found=found: found)
        assert [order_of(gpu, follows) for follows in (False, True)] == expected
