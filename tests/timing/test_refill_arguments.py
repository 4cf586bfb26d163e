"""What a checksum of an input's memory sees."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.timing.checks.refill_arguments import checksums

DTYPES = (torch.bool, torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex128)


@given(st.sampled_from(DTYPES), st.integers(0, 40), st.integers(0, 9), st.data())
@settings(deadline=None)
def test_any_single_bit_is_seen_wherever_the_tensor_begins_and_ends(dtype, length, offset, data):
    size = torch.empty((), dtype=dtype).element_size()
    memory = torch.randint(0, 2, (64 * size,), dtype=torch.uint8)
    tensor = memory.view(dtype)[offset : offset + length]
    before = checksums([tensor])
    assert checksums([tensor]) == before
    if not length:
        return
    byte = data.draw(st.integers(offset * size, (offset + length) * size - 1))
    memory[byte] ^= 1 << (0 if dtype == torch.bool else data.draw(st.integers(0, 7)))
    assert checksums([tensor]) != before


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
def test_an_exchange_of_two_words_is_seen(dtype):
    tensor = torch.arange(32).to(dtype)
    before = checksums([tensor])
    tensor[:16] = tensor.flip(0)[:16]
    assert checksums([tensor, tensor])[0] != before[0]


def test_words_beyond_one_chunk_count_by_their_place(monkeypatch):
    monkeypatch.setattr("lockstep.timing.checks.refill_arguments._CHUNK", 4)
    tensor = torch.arange(16)
    before = checksums([tensor])
    assert checksums([tensor.roll(4)]) != before
    assert checksums([tensor]) == before
