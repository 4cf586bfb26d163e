"""The digest of prepared values is equal for equal values, and for no others."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lockstep.same_work.values import values_digest

dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.int8, torch.int64])
tensors = st.builds(
    lambda rows, columns, dtype, first: torch.arange(first, first + rows * columns).reshape(rows, columns).to(dtype),
    *(st.integers(0, 4), st.integers(0, 4), dtypes, st.integers(0, 9)),
)
values = st.recursive(
    st.one_of(tensors, st.none(), st.integers(), st.booleans(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values)
def test_a_copy_has_the_same_digest(value):
    assert values_digest(copy.deepcopy(value)) == values_digest(value) != ""


@pytest.mark.parametrize(
    "other",
    [
        {"w": torch.tensor([[1, 2], [3, 5]]), "n": 2},
        {"w": torch.tensor([[1, 3], [2, 4]]), "n": 2},
        {"w": torch.tensor([[1, 3], [2, 4]]).t(), "n": 2},
        {"w": torch.tensor([1, 2, 3, 4]), "n": 2},
        {"w": torch.tensor([[1, 2], [3, 4]], dtype=torch.int32), "n": 2},
        {"w": torch.tensor([[1, 2], [3, 4]]), "n": 3},
        {"w": torch.tensor([[1, 2], [3, 4]]), "n": 2.0},
        {"w": torch.tensor([[1, 2], [3, 4]]), "m": 2},
        {"w": [torch.tensor([1, 2]), torch.tensor([3, 4])], "n": 2},
    ],
)
def test_other_values_have_another_digest(other):
    assert values_digest(other) != values_digest({"w": torch.tensor([[1, 2], [3, 4]]), "n": 2})


def test_a_view_counts_by_what_it_shows():
    whole = torch.arange(12).reshape(3, 4)
    assert values_digest(whole[:, :2]) == values_digest(torch.arange(12).reshape(3, 4)[:, :2])
    assert values_digest(whole[:, :2]) != values_digest(whole[:, 1:3])


def test_an_object_of_an_unknown_class_is_equal_to_nothing():
    assert values_digest({"w": torch.ones(2), "packed": object()}) == ""
