"""The mailbox through the kernel that uses it most plainly: ``split_k``, interpreted, or on a GPU where there is one.

With LOCKSTEP_TEST_GPU set the same tests run on a GPU, where programs of one launch do wait for each other.
"""

import os

import pytest
import torch

from kernels.linear import VARIANTS
from kernels.mailbox import mailbox

DEVICE = torch.device("cuda", torch.cuda.current_device()) if os.environ.get("LOCKSTEP_TEST_GPU") else "cpu"
VARIANT = VARIANTS["split_k" if DEVICE == "cpu" else "split_k_pdl"]


def empty() -> bool:
    return bool((mailbox(torch.device(DEVICE)) == -1).all())


@pytest.mark.parametrize("M", [1, 32, 64, 100])
def test_it_is_empty_after_every_launch(M):
    weight = torch.randn(72, 1536, device=DEVICE)
    for _ in range(3):
        x = torch.randn(M, 1536, device=DEVICE)
        torch.testing.assert_close(VARIANT(x, weight), x @ weight.T, atol=1e-3, rtol=1e-3)
        assert empty()


@pytest.mark.parametrize("bits", [-1, 0x7FC00000, 0x7FFFFFFF])
def test_a_nan_is_delivered_whatever_its_bits(bits):
    x = torch.ones(2, 512, device=DEVICE)
    x[1, 5] = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    result = VARIANT(x, torch.ones(64, 512, device=DEVICE))
    assert (result[0] == 512).all()
    assert result[1].isnan().all()
    assert empty()
