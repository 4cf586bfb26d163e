"""A thinned line has real points only, and in every column those that a drawn line shows."""

import numpy as np
import pytest

from dashboard.charts.thinning import envelope, outline_points


@pytest.fixture
def walk():
    draw = np.random.default_rng(3)
    x = np.sort(draw.choice(2400, 2000, replace=False)).astype(np.int32)
    return x, 10 + draw.normal(0, 0.1, len(x)) + (x > 1200)


def test_every_column_keeps_its_lowest_and_its_highest_point(walk):
    x, y = walk
    kept = outline_points(x, y, 6.0)
    assert len(kept) <= 2 * 401
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == len(x) - 1
    column = (x - x[0]) // 6
    for one in np.unique(column):
        own = y[column == one]
        thin = y[kept][column[kept] == one]
        assert (thin.min(), thin.max()) == (own.min(), own.max())


def test_a_single_odd_point_is_never_lost():
    y = np.ones(2000)
    y[777] = 5.0
    assert 777 in outline_points(np.arange(2000), y, 20.0)


def test_a_line_with_room_for_all_its_points_keeps_them(walk):
    x, y = walk
    assert outline_points(x, y, 1.0).tolist() == list(range(len(x)))
    assert outline_points(x[:1], y[:1], 5.0).tolist() == [0]


def test_a_band_holds_every_interval_of_its_columns(walk):
    x, y = walk
    at, low, high = envelope(x, y - 0.1, y + 0.1, 6.0)
    assert len(at) <= 402
    assert (at[0], at[-1]) == (x[0], x[-1])
    below, above = (np.array([end[np.searchsorted(at, one, "right") - 1] for one in x]) for end in (low, high))
    assert (below <= y - 0.1).all()
    assert (above >= y + 0.1).all()
    whole = envelope(x, y - 0.1, y + 0.1, 0.5)
    assert whole[0].tolist() == x.tolist()
