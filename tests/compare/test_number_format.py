"""Numbers as readers see them."""

import pytest

from lockstep.compare.number_format import THIN, decimals, significant, whole


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.4, "1.400"),
        (1.0, "1.000"),
        (200_000.0, f"200{THIN}000"),
        (-2868.14, f"-2{THIN}868"),
        (99.994, "99.99"),
        (99.996, "100.0"),
        (999.96, f"1{THIN}000"),
        (1000.0, f"1{THIN}000"),
        (0.0001234, "0.0001234"),
        (9.9996, "10.00"),
        (0.0, "0"),
        (1e-6, "0.000001000"),
        (0.9e-6, "9e-07"),
        (0.9e12, f"900{THIN}000{THIN}000{THIN}000"),
        (1e12, "1e+12"),
        (-3e15, "-3e+15"),
    ],
)
def test_a_number_shows_all_digits_that_count(value, text):
    assert significant(value, 4) == text


@pytest.mark.parametrize("digits", [1, 2, 4, 7])
def test_as_many_digits_as_scientific_notation_rounds_to(digits):
    for size in range(-5, 12):
        for factor in (1.0, 1.005, 3.456789, 9.4, 9.96, 9.99949, 9.9999999):
            value = factor * 10.0**size
            _, exponent = f"{value:.{digits - 1}e}".split("e")
            assert decimals(-value, digits) == max(digits - 1 - int(exponent), 0)


def test_a_whole_number_keeps_its_thousands_apart():
    assert [whole(one) for one in (2480.4, 999, 1234567)] == [f"2{THIN}480", "999", f"1{THIN}234{THIN}567"]
