"""The mailbox through the kernels that use it most plainly: ``stream`` and ``share`` of ``linear``, on a Hopper GPU.

Gluon has no interpreter: without LOCKSTEP_TEST_GPU only its size is tested.
"""

import os

import pytest
import torch

from kernels.common.devices import sm_count
from kernels.common.partial_sums import capacity, mailbox
from kernels.common.tables import DEFAULT
from kernels.linear import CANDIDATES, VARIANTS
from kernels.linear.stream_kernel import TABLE, Stream, parts_of

TILE_CONFIGS = [Stream(**row.use) for row in TABLE.rows(TABLE.path(DEFAULT))["stream"]]
needs_gpu = pytest.mark.skipif(not os.environ.get("LOCKSTEP_TEST_GPU"), reason="Gluon has no interpreter")


def empty() -> bool:
    return bool((mailbox(torch.device("cuda", torch.cuda.current_device())) == -1).all())


@pytest.mark.parametrize("config", TILE_CONFIGS, ids=lambda config: f"{config.m} rows")
@pytest.mark.parametrize(("K", "N"), [(7168, 64), (7168, 576), (4096, 2048), (1536, 3072), (256, 4224), (1536, 8448)])
def test_it_has_room_for_the_parts_of_every_tile(config, K, N):
    device = torch.device("cpu")
    tiles = -(-N // config.n)
    assert tiles * (parts_of(config, K, N, device) - 1) * config.m * config.n <= capacity(device)


@pytest.mark.parametrize("M", [1, 17, 32, 64])
def test_it_has_room_for_all_the_shares_that_can_be_resident(M):
    device = torch.device("cpu")
    cuts = CANDIDATES["share"](M, 4096, 2048).configs
    assert cuts
    assert all(sm_count(device) * config.m * config.n <= capacity(device) for config in cuts)


@needs_gpu
@pytest.mark.parametrize(
    ("variant", "M"), [("stream", 1), ("stream", 8), ("stream", 16), ("stream", 32), ("share", 32)]
)
def test_it_is_empty_after_every_launch(variant, M):
    K, N = (1536, 72) if variant == "stream" else (4096, 2048)
    weight = torch.randn(N, K, device="cuda", dtype=torch.half)
    for _ in range(3):
        x = torch.randn(M, K, device="cuda", dtype=torch.half)
        torch.testing.assert_close(VARIANTS[variant](x, weight), x @ weight.T, atol=0.2, rtol=1e-2)
        assert empty()


@needs_gpu
@pytest.mark.parametrize("bits", [-1, 0x7E00, 0x7FFF])
def test_a_nan_is_delivered_whatever_its_bits(bits):
    x = torch.ones(2, 512, device="cuda", dtype=torch.half)
    x[1, 5] = torch.tensor(bits, dtype=torch.int16).view(torch.half)
    result = VARIANTS["stream"](x, torch.ones(64, 512, device="cuda", dtype=torch.half))
    assert (result[0] == 512).all()
    assert result[1].isnan().all()
    assert empty()
