"""A parameter value keeps its series when asv, Python or NumPy writes the same value in another way."""

import numpy as np
import pytest
from asv_runner.benchmarks._base import _unique_param_ids
from trees import COMMIT, DATE, edit, open_store, write_plain

from lockstep.history.parameter_text import parameter_texts, steady


def plain(root, commit, values):
    """One file of another project, with these texts as the values of one parameter."""
    path = write_plain(root, {"suite.time_f": 1.0}, commit=commit)
    # A text may be there twice.
    numbers = [float(place + 1) for place in range(len(values))]
    edit(path, lambda data: data["results"].update({"suite.time_f": [numbers, [values], "1", DATE, 1.0]}))


def series(root):
    """The series of the tree, with the number of their points."""
    results = open_store(root).current()
    return {trend.series.text: len(trend) for trend in results.trends()}


SCALARS = [
    *(np.float64(0.5), np.float32(0.1), np.float16(2), np.longdouble(0.5), np.float64("nan"), np.float64("-inf")),
    *(np.int64(-3), np.uint8(3), np.intp(7), np.longlong(1), np.ulonglong(1), np.True_, np.False_),
    *(np.str_("a"), np.str_("it's (a)"), np.bytes_(b"a\x00"), np.complex128(1 + 2j), np.complex64(2j)),
    *(np.complex128(complex("nan+1j")), np.datetime64("2020-01-01"), np.timedelta64(1, "D"), np.complex128(-1e-5 - 2j)),
    *((np.int64(3), np.float64(0.5)), [np.str_("np.int64(1)")], {"a": np.float64(1e-5), "b": [np.int8(1)]}),
]


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_a_scalar_of_numpy_2_has_the_text_of_numpy_1(value):
    with np.printoptions(legacy="1.25"):
        old = repr(value)
    assert steady(repr(value)) == old
    assert steady(old) == old


@pytest.mark.parametrize(
    "text",
    [
        repr("np.float64(0.5)"),
        repr("x at 0x7f>"),
        "mynp.float64(1)",
        "np.float64x(1)",
        "a.np.int64(1)",
        "at 0x7f",
        "np.",
    ],
)
def test_other_texts_stay(text):
    assert steady(text) == text


class Plain:
    pass


def function():
    """A parameter with an address."""


def test_addresses_are_stripped_as_asv_strips_them():
    values = [function, Plain(), 0.5, "a"]
    assert list(parameter_texts([repr(value) for value in values])) == _unique_param_ids([values])[0]
    several = [Plain(), Plain(), function]
    assert list(parameter_texts([repr(value) for value in several])) == _unique_param_ids([several])[0]
    assert steady(f"[{function!r}, 3]") == "[<function function>, 3]"


def test_a_series_continues_where_only_the_text_of_its_parameter_changes(tmp_path):
    texts = [["0.5", "<f at 0x7f01>"], ["np.float64(0.5)", "<f at 0x7f02>"], ["0.5", "<f>"]]
    for number, values in enumerate(texts):
        plain(tmp_path / "r", f"{number}{COMMIT[1:]}", values)
    assert series(tmp_path / "r") == {"param1=0.5": 3, "param1=<f>": 3}


def test_values_that_differ_in_their_addresses_alone_are_numbered(tmp_path):
    plain(tmp_path / "r", COMMIT, ["<f at 0x1>", "<f at 0x2>", "1"])
    assert series(tmp_path / "r") == {"param1=<f> (0)": 1, "param1=<f> (1)": 1, "param1=1": 1}


def test_equal_texts_count_once_as_in_asv(tmp_path):
    plain(tmp_path / "r", COMMIT, ["np.int64(1)", "np.int64(1)"])
    assert series(tmp_path / "r") == {"param1=1": 1}
