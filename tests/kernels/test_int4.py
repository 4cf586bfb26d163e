"""Packing is exact both ways, and says by name what it cannot pack."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.w4a16 import int4


def draw_codes(K, N, seed=0):
    return torch.randint(0, 16, (K, N), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def unpack_pairs(pairs):
    return torch.stack((pairs >> 4, pairs & 0xF), dim=2).view(len(pairs), -1).t().contiguous()


@settings(max_examples=30)
@given(K=st.integers(1, 300), N=st.integers(1, 300), seed=st.integers(0, 99))
def test_planes_come_back(K, N, seed):
    codes = draw_codes(K, N, seed)
    words = int4.pack_planes(codes)
    assert words.shape == int4.plane_shape(K, N)
    assert torch.equal(int4.unpack_planes(words, K, N), codes)


@settings(max_examples=30)
@given(half=st.integers(1, 35), N=st.integers(1, 20), seed=st.integers(0, 99))
def test_pairs_come_back(half, N, seed):
    codes = draw_codes(2 * half, N, seed)
    assert torch.equal(unpack_pairs(int4.pack_pairs(codes)), codes)


def test_the_first_of_two_rows_lies_in_the_high_bits():
    codes = torch.arange(8, dtype=torch.uint8).view(8, 1)
    assert int4.pack_pairs(codes).tolist() == [[0x01, 0x23, 0x45, 0x67]]


def test_a_word_of_planes_holds_rows_that_lie_32_apart():
    codes = torch.full((256, 65), int4.ZERO_POINT, dtype=torch.uint8)
    codes[128 + 5 :: 32, 64] = torch.tensor([1, 2, 3, 4], dtype=torch.uint8)
    words = int4.pack_planes(codes)
    assert words[1, 1, 0, 5].item() == 0x4321
    assert (words == 0x8888 - 0x10000).sum() == words.numel() - 1


def test_weights_are_centred_and_scaled_by_group():
    codes = torch.tensor([[0, 15], [8, 9], [7, 8], [15, 0]], dtype=torch.uint8)
    scales = torch.tensor([[1.0, 2.0], [0.5, 4.0]], dtype=torch.float16)
    assert int4.dequantise(codes, scales).tolist() == [[-8, 14], [0, 2], [-0.5, 0], [3.5, -32]]


@pytest.mark.parametrize("pack", [int4.pack_planes, int4.pack_pairs])
def test_codes_that_are_no_int4_are_refused(pack):
    with pytest.raises(ValueError, match=r"codes must lie in 0 … 15, got 16"):
        pack(torch.full((8, 8), 16, dtype=torch.uint8))
    with pytest.raises(ValueError, match="codes must be uint8"):
        pack(torch.zeros(8, 8, dtype=torch.int8))
    with pytest.raises(ValueError, match="codes must have shape"):
        pack(torch.zeros(8, dtype=torch.uint8))


def test_scales_must_divide_the_rows():
    codes = draw_codes(6, 4)
    with pytest.raises(ValueError, match="scales must have a number of rows that divides K=6, got 4"):
        int4.dequantise(codes, torch.ones(4, 4, dtype=torch.float16))
    with pytest.raises(ValueError, match="scales must be float16"):
        int4.dequantise(codes, torch.ones(2, 4))


def test_words_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"words must have shape \[4, 2, 64, 32\]"):
        int4.unpack_planes(torch.zeros(4, 1, 64, 32, dtype=torch.int16), 129, 4)
    with pytest.raises(ValueError, match="codes must have an even number of rows"):
        int4.pack_pairs(draw_codes(3, 4))
